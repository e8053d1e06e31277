//! What is measured on: made once, kept in the cache directory, copied fresh for each run.
//!
//! Whatever comes from the distribution comes through apt-get with a configuration of this
//! program's own: `/etc/apt` and the machine's package lists stay as they are.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::context::Context;

/// Makes `name` in the cache by `make`, unless it is there; a half-made one is never taken.
pub fn cached(
    context: &Context,
    name: &str,
    make: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let path = context.cache.join(name);
    if !path.exists() {
        eprintln!("  preparing {name}");
        let part = context.cache.join(format!("{name}.part"));
        if part.exists() {
            fs::remove_dir_all(&part)?;
        }
        fs::create_dir_all(&part)?;
        make(&part).with_context(|| format!("preparing {name}"))?;
        fs::rename(&part, &path)?;
    }
    Ok(path)
}

/// A fresh copy of a prepared input in the scratch directory.
pub fn copy(context: &Context, input: &Path, name: &str) -> Result<PathBuf> {
    let target = context.work.join(name);
    if target.exists() {
        fs::remove_dir_all(&target)?;
    }
    let mut command = Command::new("cp");
    done(command.args(["-a", "--reflink=auto"]).arg(input).arg(&target))?;
    // What the copy left to be written must not be written at the measured command's expense.
    rustix::fs::sync();
    Ok(target)
}

/// Runs a preparing command; fails with its last words.
pub fn done(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?}: {}: {}", output.status, stderr.lines().last().unwrap_or_default());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The source of nano, patched as the distribution has it, not configured.
pub fn nano(context: &Context) -> Result<PathBuf> {
    let unpacked = cached(context, "nano", |dir| {
        let apt = PrivateApt::new(&dir.join("apt"))?;
        done(apt.get().args(["source", "nano"]).current_dir(dir))?;
        fs::remove_dir_all(dir.join("apt"))?;
        Ok(())
    })?;
    let source = fs::read_dir(&unpacked)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.is_dir())
        .context("apt-get source left no directory")?;
    Ok(source)
}

/// The same, configured.
pub fn nano_configured(context: &Context) -> Result<PathBuf> {
    let source = nano(context)?;
    cached(context, "nano-configured", |dir| {
        done(Command::new("cp").arg("-a").arg(source.join(".")).arg(dir))?;
        done(Command::new("./configure").current_dir(dir)).map(drop)
    })
}

/// A small system of the distribution with man-db, `pages` manual pages without an index (as images
/// come), and in `/debs` the packages that openssh-server adds to it. Its host keys are there
/// already: making them takes a random time.
pub fn system(context: &Context, pages: usize) -> Result<PathBuf> {
    cached(context, "system", |dir| {
        let release = os_release("VERSION_CODENAME")?;
        let mut bootstrap = Command::new("debootstrap");
        bootstrap.args(["--variant=minbase", "--include=man-db", &release]).arg(dir);
        if let Some(mirror) = apt_sources()?.first().map(|source| source.site.clone()) {
            bootstrap.arg(mirror);
        }
        done(&mut bootstrap)?;
        let chroot = |args: &[&str]| {
            let mut command = Command::new("chroot");
            command.arg(dir).args(args).env("DEBIAN_FRONTEND", "noninteractive");
            done(&mut command)
        };
        // What the system itself was made of is not to be installed again.
        chroot(&["apt-get", "clean"])?;
        chroot(&["apt-get", "-q", "update"])?;
        chroot(&[
            "apt-get",
            "-q",
            "-y",
            "--no-install-recommends",
            "--download-only",
            "install",
            "openssh-server",
        ])?;
        fs::create_dir(dir.join("debs"))?;
        for entry in fs::read_dir(dir.join("var/cache/apt/archives"))? {
            let path = entry?.path();
            if let (Some(name), Some("deb")) =
                (path.file_name(), path.extension().and_then(|e| e.to_str()))
            {
                fs::rename(&path, dir.join("debs").join(name))?;
            }
        }
        chroot(&["apt-get", "clean"])?;
        fs::create_dir_all(dir.join("etc/ssh"))?;
        for kind in ["rsa", "ecdsa", "ed25519"] {
            let key = dir.join(format!("etc/ssh/ssh_host_{kind}_key"));
            fs::write(&key, "made before\n")?;
        }
        write_pages(&dir.join("usr/share/man/man3"), pages)?;
        for name in ["var/cache/man", "var/lib/apt/lists"] {
            done(Command::new("find").arg(dir.join(name)).args(["-mindepth", "1", "-delete"]))?;
        }
        Ok(())
    })
}

fn write_pages(dir: &Path, count: usize) -> Result<()> {
    fs::create_dir_all(dir)?;
    for number in 0..count {
        let page = format!(
            ".TH BENCH{number} 3\n.SH NAME\nbench{number} \\- page {number} of many\n\
             .SH DESCRIPTION\nText that fills a small page, number {number}.\n"
        );
        let mut zip = Command::new("gzip")
            .args(["-n", "-c"])
            .stdin(Stdio::piped())
            .stdout(fs::File::create(dir.join(format!("bench{number}.3.gz")))?)
            .spawn()?;
        if let Some(mut input) = zip.stdin.take() {
            input.write_all(page.as_bytes())?;
        }
        zip.wait()?;
    }
    Ok(())
}

/// `count` files of 1 to 4 KiB, `file-000000` and on, evenly in the directories `00` to `99`.
pub fn small_files(context: &Context, count: usize) -> Result<PathBuf> {
    cached(context, &format!("files-{count}"), |dir| {
        for home in 0..100 {
            fs::create_dir(dir.join(format!("{home:02}")))?;
        }
        for number in 0..count {
            let size = 1024 + number * 37 % 3072;
            let text: Vec<u8> = (0..size).map(|at| b'a' + ((at + number) % 26) as u8).collect();
            let name = format!("{:02}/file-{number:06}", number % 100);
            fs::write(dir.join(name), text)?;
        }
        Ok(())
    })
}

/// A git repository with `count` files on the branch `full`, checked out on the branch `empty`.
pub fn repository(context: &Context, count: usize) -> Result<PathBuf> {
    let files = small_files(context, count)?;
    cached(context, &format!("repository-{count}"), |dir| {
        let git = |args: &[&str]| {
            let mut command = Command::new("git");
            command.args(["-c", "user.name=bench", "-c", "user.email=bench@localhost"]);
            done(command.args(["-c", "gc.auto=0"]).args(args).current_dir(dir))
        };
        git(&["init", "-q", "-b", "empty"])?;
        git(&["commit", "-q", "--allow-empty", "-m", "empty"])?;
        git(&["checkout", "-q", "-b", "full"])?;
        done(Command::new("cp").arg("-a").arg(files.join(".")).arg(dir))?;
        git(&["add", "."])?;
        git(&["commit", "-q", "-m", "full"])?;
        git(&["repack", "-q", "-a", "-d"])?;
        git(&["checkout", "-q", "empty"]).map(drop)
    })
}

/// One line of the machine's apt sources.
struct Source {
    site: String,
    codename: String,
    component: String,
}

fn apt_sources() -> Result<Vec<Source>> {
    let mut command = Command::new("apt-get");
    command.args(["indextargets", "--format", "$(SITE)|$(CODENAME)|$(COMPONENT)"]);
    let lines = done(command.arg("Created-By: Packages"))?;
    let release = os_release("VERSION_CODENAME")?;
    let mut sources: Vec<_> = lines
        .lines()
        .filter_map(|line| {
            let mut parts = line.split('|').map(str::to_owned);
            Some(Source { site: parts.next()?, codename: parts.next()?, component: parts.next()? })
        })
        .filter(|source| source.codename.starts_with(&release))
        .collect();
    // The release itself before its updates.
    sources.sort_by_key(|source| source.codename != release);
    Ok(sources)
}

fn os_release(key: &str) -> Result<String> {
    let text = fs::read_to_string("/etc/os-release")?;
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
        .map(|value| value.trim_matches('"').to_owned())
        .with_context(|| format!("/etc/os-release has no {key}: is this Debian or Ubuntu?"))
}

/// apt-get with lists, cache and sources of its own, the last with the machine's mirrors.
struct PrivateApt {
    options: Vec<String>,
}

impl PrivateApt {
    fn new(dir: &Path) -> Result<Self> {
        for part in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(dir.join(part))?;
        }
        let mut lines = String::new();
        for source in apt_sources()? {
            let Source { site, codename, component } = source;
            lines += &format!("deb-src {site} {codename} {component}\n");
        }
        fs::write(dir.join("sources.list"), lines)?;
        let option = |key: &str, value: &str| format!("-o{key}={}/{value}", dir.display());
        let options = vec![
            option("Dir::Etc::SourceList", "sources.list"),
            option("Dir::Etc::SourceParts", "none"),
            option("Dir::State::Lists", "lists"),
            option("Dir::Cache", "cache"),
            "-oAPT::Sandbox::User=root".to_owned(),
        ];
        let apt = Self { options };
        done(apt.get().arg("update"))?;
        Ok(apt)
    }

    fn get(&self) -> Command {
        let mut command = Command::new("apt-get");
        command.arg("-q").args(&self.options);
        command
    }
}
