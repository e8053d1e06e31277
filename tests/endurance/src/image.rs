//! The virtual machine's parts: Debian's own kernel, a first file system in memory that loads its
//! modules, and a read-only root with busybox, txos, the worker and the file system checkers.

use std::{
    collections::{BTreeSet, HashMap},
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};

/// What the guest needs of the kernel.
const MODULES: [&str; 5] = ["virtio_pci", "virtio_blk", "xfs", "fuse", "overlay"];

const INITRD: &str = include_str!("initrd.sh");

/// What a guest is to do, and with what.
#[derive(Clone, Copy, Debug)]
pub struct Guest<'a> {
    /// The script that is its first process.
    pub script: &'a str,
    /// Programs of `/bin`, by their names there.
    pub programs: &'a [(&'a str, &'a Path)],
}

/// A virtual machine's parts.
#[derive(Clone, Debug)]
pub struct Image {
    /// The kernel.
    pub kernel: PathBuf,
    /// The first file system.
    pub initrd: PathBuf,
    /// The disk with the root.
    pub root: PathBuf,
}

/// Puts an image together in `work` for such a guest. The kernel is fetched from Debian's archive once.
///
/// # Errors
/// If a tool is missing (`qemu-system-x86`, `busybox-static`, `e2fsprogs`, `xfsprogs`, `cpio`,
/// `kmod`), the kernel can't be fetched, or a file can't be written.
pub fn build(work: &Path, guest: &Guest<'_>) -> Result<Image> {
    let unpacked = work.join("kernel");
    if !unpacked.join("boot").is_dir() {
        fetch_kernel(work, &unpacked)?;
    }
    let version = only_name(&unpacked.join("lib/modules"))?;
    let kernel = unpacked.join(format!("boot/vmlinuz-{version}"));
    let initrd = work.join("initrd");
    first_file_system(work, &unpacked, &version, &initrd)?;
    let root = work.join("root.img");
    root_disk(work, &root, guest)?;
    Ok(Image { kernel, initrd, root })
}

fn fetch_kernel(work: &Path, unpacked: &Path) -> Result<()> {
    let depends = output(Command::new("apt-cache").args(["depends", "linux-image-cloud-amd64"]))?;
    let package = depends
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| name.starts_with("linux-image-"))
        .context("the archive's kernel for virtual machines has no version (apt-get update?)")?;
    run(Command::new("apt-get").args(["download", package]).current_dir(work))?;
    for entry in fs::read_dir(work)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "deb") {
            run(Command::new("dpkg").arg("-x").arg(&path).arg(unpacked))?;
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// The first file system: loads modules, and goes on with the root.
fn first_file_system(work: &Path, unpacked: &Path, version: &str, initrd: &Path) -> Result<()> {
    let top = work.join("initrd.d");
    fresh(&top)?;
    for dir in ["bin", "dev", "proc", "root", "modules"] {
        fs::create_dir_all(top.join(dir))?;
    }
    copy(&busybox()?, &top.join("bin/busybox"))?;
    run(Command::new("depmod").arg("-b").arg(unpacked).arg(version))?;
    let modules = unpacked.join("lib/modules").join(version);
    let mut script = String::new();
    for module in in_order(&modules)? {
        let name = module.file_name().context("a module without a name")?;
        copy(&module, &top.join("modules").join(name))?;
        script += &format!("insmod /modules/{}\n", name.to_string_lossy());
    }
    executable(&top.join("init"), &INITRD.replace("@MODULES@", &script))?;
    let listed = output(Command::new("find").arg(".").current_dir(&top))?;
    let mut cpio = Command::new("cpio")
        .args(["-o", "-H", "newc", "--quiet"])
        .current_dir(&top)
        .stdin(Stdio::piped())
        .stdout(fs::File::create(initrd)?)
        .spawn()
        .context("cannot start cpio")?;
    std::io::Write::write_all(&mut cpio.stdin.take().context("no input")?, listed.as_bytes())?;
    ensure!(cpio.wait()?.success(), "cpio failed");
    Ok(())
}

/// The modules and what they need, in the order in which they can be loaded.
fn in_order(modules: &Path) -> Result<Vec<PathBuf>> {
    let text = fs::read_to_string(modules.join("modules.dep"))?;
    let mut needs: HashMap<String, Vec<PathBuf>> = HashMap::new();
    for line in text.lines() {
        let Some((module, rest)) = line.split_once(':') else { continue };
        // What a module needs stands behind it, the first to load last.
        let chain = rest.split_whitespace().rev().chain([module]).map(|path| modules.join(path));
        let stem = Path::new(module).file_stem().unwrap_or_default().to_string_lossy();
        needs.insert(stem.replace('-', "_"), chain.collect());
    }
    let mut order = Vec::new();
    for module in MODULES {
        // One that is built in is not listed.
        for path in needs.get(module).into_iter().flatten() {
            if !order.contains(path) {
                order.push(path.clone());
            }
        }
    }
    Ok(order)
}

fn root_disk(work: &Path, disk: &Path, guest: &Guest<'_>) -> Result<()> {
    let top = work.join("root.d");
    fresh(&top)?;
    for dir in
        ["bin", "sbin", "dev", "proc", "sys", "tmp", "run", "etc", "ext", "xfs", "root", "var/lib"]
    {
        fs::create_dir_all(top.join(dir))?;
    }
    let busybox = busybox()?;
    copy(&busybox, &top.join("bin/busybox"))?;
    for applet in output(Command::new(&busybox).arg("--list"))?.lines() {
        let _ = symlink("busybox", top.join("bin").join(applet));
    }
    executable(&top.join("sbin/guest"), guest.script)?;
    fs::write(top.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n")?;
    fs::write(top.join("etc/group"), "root:x:0:\n")?;
    let mut libraries = BTreeSet::new();
    let tools = [("sbin/e2fsck", which("e2fsck")?), ("sbin/xfs_repair", which("xfs_repair")?)];
    let tools = tools.map(|(name, program)| (name.to_owned(), program));
    let own = guest.programs.iter().map(|(name, path)| (format!("bin/{name}"), path.to_path_buf()));
    for (name, program) in tools.into_iter().chain(own) {
        libraries.extend(libraries_of(&program)?);
        copy(&program, &top.join(name))?;
    }
    for library in libraries {
        let place = top.join(library.strip_prefix("/").unwrap_or(&library));
        fs::create_dir_all(place.parent().context("a library without a directory")?)?;
        copy(&library, &place)?;
    }
    let _ = fs::remove_file(disk);
    run(Command::new("mke2fs").args(["-q", "-t", "ext4", "-d"]).arg(&top).arg(disk).arg("128M"))
}

/// The shared libraries of a program, and its loader.
fn libraries_of(program: &Path) -> Result<Vec<PathBuf>> {
    let text = output(Command::new("ldd").arg(program))?;
    let paths = text.split_whitespace().filter(|word| word.starts_with('/'));
    Ok(paths.map(PathBuf::from).collect())
}

/// Makes an empty disk with a file system of kind `ext4` or `xfs`.
///
/// # Errors
/// If the tool for it is missing or fails.
pub fn empty_disk(disk: &Path, kind: &str) -> Result<()> {
    let _ = fs::remove_file(disk);
    let size = if kind == "xfs" { 320 << 20 } else { 96 << 20 };
    fs::File::create(disk)?.set_len(size)?;
    match kind {
        // Blocks smaller than a page: a cut can tear a page (docs/journal.md, "What the disk is trusted
        // to do"), which is more than it can do with blocks of 4096 bytes.
        "ext4" => run(Command::new("mke2fs").args(["-q", "-t", "ext4", "-b", "1024"]).arg(disk)),
        "xfs" => run(Command::new("mkfs.xfs").arg("-q").arg(disk)),
        other => bail!("no file system is called {other:?}: ext4 or xfs"),
    }
}

fn busybox() -> Result<PathBuf> {
    which("busybox").context("install busybox-static")
}

fn which(name: &str) -> Result<PathBuf> {
    ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin"]
        .into_iter()
        .map(|dir| Path::new(dir).join(name))
        .find(|path| path.is_file())
        .with_context(|| format!("{name} is not installed"))
}

fn fresh(dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir)?;
    }
    Ok(fs::create_dir_all(dir)?)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(())
}

fn executable(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

fn only_name(dir: &Path) -> Result<String> {
    let mut names = fs::read_dir(dir)?;
    let name = names.next().with_context(|| format!("{} is empty", dir.display()))??;
    Ok(name.file_name().to_string_lossy().into_owned())
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.stdout(Stdio::null()).status();
    let status = status.with_context(|| format!("cannot start {:?}", command.get_program()))?;
    ensure!(status.success(), "{:?} failed: {status}", command.get_program());
    Ok(())
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {:?}", command.get_program()))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
