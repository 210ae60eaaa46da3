//! A guest with two network cards: QEMU without hardware virtualisation, with one processor.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use super::card::Card;
use super::clock::{COMMAND, Reading, Threads};
use super::shell::Shell;
use crate::kernel::machine::Cores;
use crate::process::{Background, await_some, command, of, run};
use crate::rows::Failure;

/// Maximum time until the guest's shell is ready.
const BOOT: Duration = Duration::from_secs(180);

/// Memory of the guest in MiB, and number of 2-MiB huge pages that are reserved in it.
const MEMORY: [u32; 2] = [1_024, 160];

/// Kernel modules in addition to those that every guest loads.
const MODULES: [&str; 6] = [
    "ip_tables",
    "iptable_nat",
    "xt_nat",
    "nf_conntrack",
    "nf_nat",
    "nft_nat",
];

/// The image from which guests start.
#[derive(Clone, Debug)]
pub struct Image {
    kernel: String,
    initramfs: String,
}

impl Image {
    /// Builds the image in a folder with the lab's script; the image contains the program `sluice`.
    pub fn build(lab: &Path, sluice: &Path) -> Result<Self, Failure> {
        let modules = MODULES.map(|module| format!(" --module {module}")).concat();
        let tools = "--tool iptables-legacy --tool iptables-legacy-restore";
        let files = "--file /usr/lib/*/xtables/libxt_SNAT.so";
        let builder = lab.join("vm-image");
        let said = run(&format!(
            "{} {} --kernel ordinary {tools}{modules} {files}",
            builder.display(),
            sluice.display()
        ))?;
        match said.lines().collect::<Vec<_>>().as_slice() {
            [.., kernel, initramfs] => Ok(Self {
                kernel: (*kernel).into(),
                initramfs: (*initramfs).into(),
            }),
            _ => Err(format!("{} builds no guest: {said}", builder.display()).into()),
        }
    }
}

/// What a guest's clock counts; this determines which part of the benchmark runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Clock {
    /// Packets per second, and CPU time.
    Time,
    /// Instructions per packet.
    // The clock counts executed instructions, and advances with real time while the guest is idle.
    Instructions,
}

/// Duration of an instruction on the guest's clock, as the binary logarithm of nanoseconds. The timer tick of the
/// guest's kernel then occurs every 500,000 instructions.
pub const INSTRUCTION: u32 = 3;

impl Clock {
    /// QEMU arguments for this clock.
    fn words(self) -> String {
        match self {
            // Request emulation explicitly, because in a virtual machine, hardware virtualisation may appear to be
            // available without working.
            Self::Time => "-accel tcg,thread=multi".into(),
            Self::Instructions => format!("-accel tcg,thread=single -icount shift={INSTRUCTION},sleep=on"),
        }
    }
}

/// A running guest, which is stopped when this value is dropped.
#[derive(Debug)]
pub struct Guest {
    _child: Background,
    pub shell: Shell,
    threads: Threads,
}

impl Guest {
    /// Creates two TAP interfaces, starts a guest with two cards at them, and waits until the guest responds. The
    /// guest's processor runs on the gateway's core, the other threads of QEMU on the traffic's core.
    pub fn start(
        image: &Image,
        card: Card,
        clock: Clock,
        taps: [&str; 2],
        folder: &Path,
        cores: &Cores,
    ) -> Result<Self, Failure> {
        for tap in taps {
            run(&format!("ip tuntap add {tap} mode tap"))?;
            run(&format!("ip link set {tap} up"))?;
        }
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).map_err(of(folder.display()))?;
        let [console, port, log] = ["console", "shell", "log"].map(|name| folder.join(name));
        let output = File::create(&log).map_err(of(log.display()))?;
        let mut child = command("qemu-system-x86_64 -name bench,debug-threads=on -nodefaults -display none -no-reboot")
            .args(clock.words().split(' '))
            .args([
                "-M",
                "q35",
                "-cpu",
                "Nehalem",
                "-smp",
                "1",
                "-m",
                &MEMORY[0].to_string(),
            ])
            .args(["-kernel", &image.kernel, "-initrd", &image.initramfs, "-append", APPEND])
            .args(["-serial", &format!("file:{}", console.display())])
            .args(["-serial", &format!("unix:{},server=on,wait=off", port.display())])
            .args(card.devices(taps).split_whitespace())
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(of(log.display()))?)
            .stderr(output)
            .spawn()
            .map(Background)
            .map_err(of("qemu-system-x86_64"))?;
        let up = await_up(&mut child.0, &console).and_then(|()| {
            let threads = Threads::of(child.0.id()).ok_or("QEMU has no processor")?;
            Ok((Shell::new(UnixStream::connect(&port)?), threads))
        });
        match up {
            Ok((shell, threads)) => {
                let mut guest = Self {
                    _child: child,
                    shell,
                    threads,
                };
                guest.pin(cores)?;
                guest.run(&format!(
                    "echo {0} >/proc/sys/vm/nr_hugepages; [ $(cat /proc/sys/vm/nr_hugepages) = {0} ]",
                    MEMORY[1]
                ))?;
                Ok(guest)
            }
            Err(error) => {
                let said = fs::read_to_string(&log).unwrap_or_default();
                Err(format!("the guest does not come up: {error}; {}", said.trim()).into())
            }
        }
    }

    fn pin(&self, cores: &Cores) -> Result<(), Failure> {
        for (thread, is_processor) in self.threads.numbers() {
            match is_processor {
                true => _ = run(&format!("taskset -p -c {} {thread}", cores.gateway))?,
                // Ignore errors, because a thread may have ended.
                false => _ = run(&format!("taskset -p -c {} {thread}", cores.traffic)),
            }
        }
        Ok(())
    }

    /// Runs a shell command in the guest; fails if the command fails.
    pub fn run(&mut self, command: &str) -> Result<String, Failure> {
        self.shell.run(command)
    }

    pub fn reading(&mut self) -> Result<Reading, Failure> {
        let text = self.shell.run(COMMAND)?;
        Reading::parse(&text).ok_or_else(|| format!("{COMMAND} in the guest printed no clock reading: {text}").into())
    }

    /// CPU time of the thread that emulates the guest's processor, and of all of QEMU's threads.
    pub fn times(&self) -> [Duration; 2] {
        self.threads.times()
    }
}

/// Kernel command line. Mitigations of processor vulnerabilities are disabled, because the emulated processor has no
/// such vulnerabilities and mitigations make every indirect call expensive. The watchdog is disabled too.
const APPEND: &str = "console=ttyS0 quiet panic=-1 mitigations=off nowatchdog tsc=reliable";

fn await_up(child: &mut Child, console: &Path) -> Result<(), Failure> {
    let mut said = String::new();
    let up = await_some(BOOT, || {
        said = String::from_utf8_lossy(&fs::read(console).unwrap_or_default()).into_owned();
        match child.try_wait() {
            _ if said.contains("init: up") => Ok(Some(())),
            Ok(Some(status)) => Err(format!("QEMU ended with {status}").into()),
            _ => Ok(None),
        }
    })?;
    let lines: Vec<&str> = said.lines().collect();
    let end = || lines[lines.len().saturating_sub(5)..].join("; ");
    Ok(up.ok_or_else(|| format!("no shell within {BOOT:?}: {}", end()))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_that_is_not_built_is_told_with_what_the_builder_said() {
        let lab = tempfile::tempdir().expect("a folder");
        let missing = Image::build(lab.path(), Path::new("sluice")).expect_err("no builder");
        assert!(missing.to_string().contains("vm-image"), "{missing}");
    }

    #[test]
    fn emulator_that_ends_is_told_at_once() {
        let mut child = command("false").spawn().expect("a process");
        let error = await_up(&mut child, Path::new("/no/console")).expect_err("it ends");
        assert_eq!("QEMU ended with exit status: 1", error.to_string());
    }
}
