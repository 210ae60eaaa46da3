"""Kernel and initramfs of a guest: Debian's kernel, and a tree of files of this machine.

The initramfs contains busybox, sluice, DPDK's drivers for the emulated cards, a few tools, and the kernel's modules. It is stored in the
target folder, under a name that is a digest of its contents.
"""

import fcntl
import glob
import hashlib
import os
import re
import shutil
import stat
import subprocess
import time

from lab import paths

FOLDER = os.path.join(paths.TARGET, "vm")
# Seconds after the last use of an initramfs until it is removed. Until then, guests of another run may start from it.
UNUSED = 3600
INIT = os.path.join(os.path.dirname(__file__), "init")
PLUGINS = [
    "bus_auxiliary", "bus_pci", "bus_vdev", "mempool_ring", "mempool_stack", "net_bond", "net_e1000", "net_null", "net_ring", "net_virtio",
    "net_vmxnet3",
]
TOOLS = ["ip", "nft", "ethtool", "curl"]
MODULES = [
    "virtio_pci", "virtio_net", "vmxnet3", "e1000", "e1000e", "vfio-pci", "vfio_iommu_type1", "uio_pci_generic", "af_packet",
    "nf_tables", "nft_chain_nat", "nft_nat", "nft_masq", "nft_ct", "crc32c_generic",
]


class Kernel:
    """A kernel package of Debian, unpacked by `scripts/setup vm`: `cloud` has no drivers for e1000 and e1000e."""

    def __init__(self, name="cloud"):
        self.folder = os.path.join(FOLDER, f"kernel-{name}")
        found = glob.glob(os.path.join(self.folder, "boot", "vmlinuz-*"))
        if not found:
            raise SystemExit(f"{self.folder} has no kernel: scripts/setup vm {'' if name == 'cloud' else name}".rstrip())
        self.image = found[0]
        self.release = os.path.basename(self.image).removeprefix("vmlinuz-")
        self.modules = os.path.join(self.folder, "lib", "modules", self.release)
        if not os.path.exists(os.path.join(self.modules, "modules.dep")):
            subprocess.run([_busybox(), "depmod", "-b", self.folder, self.release], check=True)
        with open(os.path.join(self.modules, "modules.dep"), encoding="ascii") as file:
            self.dependencies = {name: needs.split() for name, needs in (line.split(":", 1) for line in file)}

    def files(self, modules):
        """Paths of these modules and their dependencies below the module folder. A missing module is omitted,
        because it may be built in."""
        wanted = {name.replace("-", "_") for name in modules}
        found = set()
        for path, needs in self.dependencies.items():
            if os.path.basename(path).split(".")[0].replace("-", "_") in wanted:
                found.update([path, *needs])
        return sorted(found)


class Archive:
    """A cpio archive in the format `newc`, which the kernel unpacks. The parent folders of a file are added
    automatically."""

    def __init__(self):
        self.parts, self.known = [], set()

    def _entry(self, path, mode, data=b""):
        self.known.add(path)
        name = path.encode() + b"\0"
        head = [len(self.known), mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0]
        record = b"070701" + b"".join(b"%08x" % field for field in head) + name
        self.parts += [record, bytes(-len(record) % 4), data, bytes(-len(data) % 4)]

    def folder(self, path):
        if path and path not in self.known:
            self.folder(os.path.dirname(path))
            self._entry(path, stat.S_IFDIR | 0o755)

    def data(self, path, data, mode=0o755):
        if path not in self.known:
            self.folder(os.path.dirname(path))
            self._entry(path, stat.S_IFREG | mode, data)

    def file(self, path, source):
        if path not in self.known:
            with open(source, "rb") as file:
                self.data(path, file.read())

    def link(self, path, target):
        if path not in self.known:
            self.folder(os.path.dirname(path))
            self._entry(path, stat.S_IFLNK | 0o777, target.encode())

    def write(self, path):
        self._entry("TRAILER!!!", 0)
        with open(path, "wb") as file:
            file.write(b"".join(self.parts))


def _busybox():
    return shutil.which("busybox") or _missing("busybox")


def _missing(what):
    raise SystemExit(f"{what} is missing: scripts/setup installs it")


def _libraries(programs):
    """Name and file of each library that the dynamic loader loads for the programs."""
    output = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    if missing := re.findall(r"(\S+) => not found", output):
        _missing(", ".join(sorted(set(missing))))
    return dict(re.findall(r"^\s*(\S+) => (/\S+) ", output, re.MULTILINE)), re.search(r"^\s*(/\S*ld-linux\S*) ", output, re.MULTILINE).group(1)


def _plugins():
    """The folder from which DPDK loads its drivers, and the files in this folder that a guest needs."""
    found = sorted(glob.glob("/usr/lib/*/dpdk/pmds-*"))
    if not found:
        _missing("DPDK")
    folder = found[-1]
    version = folder.rsplit("-", 1)[1]
    files = [os.path.join(folder, f"librte_{name}.so.{version}") for name in PLUGINS]
    return folder, [file if os.path.exists(file) else _missing(file) for file in files]


def _tree(sluice, kernel, tools, modules, more):
    """The content of the archive except for the stripped program. Each entry contains the method of `Archive` and
    its arguments."""
    folder, plugins = _plugins()
    programs = [shutil.which(tool) or _missing(tool) for tool in [*TOOLS, *tools]]
    libraries, loader = _libraries([sluice, _busybox(), *programs, *plugins, *more])
    place = os.path.dirname(os.path.dirname(folder)).lstrip("/")
    # A library exists only once, and the plug-in folder contains a link to it, as in Debian. A second file would be
    # loaded a second time, and register its drivers twice.
    for plugin in plugins:
        name = os.path.basename(plugin).rsplit(".", 1)[0]
        libraries[name] = plugin
        yield "link", os.path.join(folder.lstrip("/"), os.path.basename(plugin)), f"../../{name}"
    for path in ["lib", "bin", "sbin"]:
        yield "link", path, f"usr/{path}"
    yield "file", "lib64/" + os.path.basename(loader), loader
    for name, source in libraries.items():
        yield "file", f"{place}/{name}", source
    for program in programs:
        yield "file", f"usr/bin/{os.path.basename(program)}", program
    yield "file", "usr/bin/busybox", _busybox()
    applets = subprocess.run([_busybox(), "--list"], capture_output=True, text=True, check=True).stdout.split()
    for applet in applets:
        yield "link", f"usr/bin/{applet}", "busybox"
    # The kernel runs modprobe from this path.
    yield "link", "usr/sbin/modprobe", "../bin/busybox"
    for path in more:
        yield "file", path.lstrip("/"), path
    place = f"usr/lib/modules/{kernel.release}"
    for name in ["modules.dep", "modules.alias", "modules.symbols", "modules.builtin", *kernel.files([*MODULES, *modules])]:
        yield "file", f"{place}/{name}", os.path.join(kernel.modules, name)
    yield "file", "init", INIT
    yield "link", "var/run", "../run"
    # The list includes the root, because plug-ins are not loaded from a folder with write permission for all users.
    for path in [".", "dev", "proc", "sys", "run", "tmp", "root"]:
        yield "folder", path


def _key(entries, sluice):
    """A name for an archive of these entries with the current content of the files."""
    state = []
    for entry in [*entries, ("file", "sluice", sluice), ("file", "image", __file__)]:
        status = os.stat(entry[2]) if entry[0] == "file" else None
        state.append((entry, status and (status.st_size, status.st_mtime_ns)))
    return hashlib.sha256(repr(state).encode()).hexdigest()[:16]


def _write(path, entries, sluice, kernel):
    stripped = f"{path}.sluice"
    subprocess.run(["strip", "-o", stripped, sluice], check=True)
    archive = Archive()
    for call, *arguments in [("file", "usr/bin/sluice", stripped), *entries]:
        getattr(archive, call)(*arguments)
    for old in glob.glob(os.path.join(FOLDER, f"initramfs-{kernel.release}-*")):
        if os.stat(old).st_mtime < time.time() - UNUSED:
            os.remove(old)
    archive.write(path + ".part")
    os.remove(stripped)
    os.rename(path + ".part", path)


def build(sluice, kernel="cloud", tools=(), modules=(), more=()):
    """Kernel and initramfs for a program `sluice`. The initramfs is built if none with the same content exists.
    `tools` are additional programs, `modules` are additional kernel modules, and `more` are other files, which keep
    their paths in the guest."""
    os.makedirs(FOLDER, exist_ok=True)
    # Of two simultaneous runs, one builds the initramfs, and the other waits for it and for the list of modules, which
    # is part of the content.
    with open(os.path.join(FOLDER, "building"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kernel = Kernel(kernel)
        entries = list(_tree(sluice, kernel, tools, modules, more))
        path = os.path.join(FOLDER, f"initramfs-{kernel.release}-{_key(entries, sluice)}")
        if not os.path.exists(path):
            _write(path, entries, sluice, kernel)
        os.utime(path)
    return kernel.image, path
