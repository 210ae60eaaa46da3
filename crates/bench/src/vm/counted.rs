//! A program with a known number of instructions, which verifies the counting of instructions.

use super::guest::{Guest, INSTRUCTION};
use crate::rows::Failure;

/// Number of iterations of the program's loop.
const ROUNDS: u32 = 50_000_000;

/// Path of the program in the guest.
const FILE: &str = "/tmp/counted";

/// Load address of the program.
const BASE: u64 = 0x40_0000;

const HEADERS: u64 = 64 + 56;

/// Returns an ELF file whose loop runs `rounds` times, and the number of instructions that it executes.
fn program(rounds: u32) -> (Vec<u8>, u64) {
    let count = rounds.to_le_bytes();
    let code = [
        &[0xb9][..],
        &count,               // mov ecx, rounds
        &[0xff, 0xc9],        // dec ecx
        &[0x75, 0xfc],        // jnz, to the one before
        &[0xb8, 60, 0, 0, 0], // mov eax, 60: exit
        &[0x31, 0xff],        // xor edi, edi: with 0
        &[0x0f, 0x05],        // syscall
    ]
    .concat();
    let size = HEADERS + code.len() as u64;
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    // ELF header: executable, x86-64, version 1; entry point and program headers, no sections.
    let header = [0x1_003e_0002, BASE + HEADERS, 64, 0, 0x38_0040_0000_0000, 1];
    // Program header: one loadable segment, readable and executable.
    let segment = [0x5_0000_0001, 0, BASE, BASE, size, size, 0x1000];
    file.extend(header.iter().chain(&segment).flat_map(|word: &u64| word.to_le_bytes()));
    file.extend(code);
    (file, 4 + 2 * u64::from(rounds))
}

/// Counted instructions of the program, divided by the actual number.
pub fn share(guest: &mut Guest) -> Result<f64, Failure> {
    let (file, instructions) = program(ROUNDS);
    guest.shell.put(FILE, &file)?;
    guest.run(&format!("chmod +x {FILE}"))?;
    // Subtract the instructions for starting a program and for the readings.
    let mut spent = |command: &str| -> Result<f64, Failure> {
        let before = guest.reading()?;
        guest.run(command)?;
        Ok(guest.reading()?.since(&before).worked)
    };
    let nothing = spent("/bin/true")?;
    let all = spent(FILE)?;
    Ok((all - nothing) / f64::from(1 << INSTRUCTION) / instructions as f64)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn program_runs_to_its_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("counted");
        std::fs::write(&file, program(1_000).0).expect("a file");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("a program");
        // The file may still be open for a moment in a process that another test has just forked.
        let busy = std::io::ErrorKind::ExecutableFileBusy;
        let status = loop {
            match std::process::Command::new(&file).status() {
                Err(error) if error.kind() == busy => std::thread::sleep(std::time::Duration::from_millis(5)),
                status => break status.expect("it starts"),
            }
        };
        assert!(status.success(), "{status}");
    }

    #[test]
    fn instructions_are_two_a_round_and_those_around_it() {
        assert_eq!(2_004, program(1_000).1);
    }
}
