//! A process of a domain, for tests and measurements: reads, writes, stores through a mapping, or is
//! only there. It runs until it is killed.
//!
//! ```text
//! member pairs DIR COUNT OUT    read two of the files 0 … COUNT-1 after one another, over and over;
//!                               a line in OUT for each pair whose second is older than its first
//! member tick FILE MICROS       write another number to FILE, that often
//! member store FILE             map FILE, say so, and store a byte for each line of standard input
//! member idle | busy            sleep; or make system calls without a break
//! member listen SOCKET          take connections of packets at SOCKET
//! member calls DIR COUNT        make COUNT calls of eight kinds each in DIR, and say what one takes;
//!                               this one ends
//! ```

use std::{
    fs::{self, File, OpenOptions},
    io::{BufRead, Write},
    os::unix::fs::FileExt,
    path::Path,
    thread,
    time::{Duration, Instant},
};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["pairs", dir, count, out] => pairs(dir.as_ref(), count.parse().expect("count"), out),
        ["tick", file, micros] => tick(file, micros.parse().expect("microseconds")),
        ["store", file] => store(file),
        ["idle"] => loop {
            thread::sleep(Duration::from_secs(1));
        },
        ["busy"] => loop {
            let _ = fs::symlink_metadata("/");
        },
        ["listen", socket] => listen(socket),
        ["calls", dir, count] => calls(dir.as_ref(), count.parse().expect("count")),
        _ => panic!("unknown words: {words:?}"),
    }
}

fn pairs(dir: &Path, count: u64, out: &str) {
    let mut out = OpenOptions::new().append(true).create(true).open(out).expect("out");
    // A file that is being written is older than any.
    let read = |number: u64| -> u64 {
        let text = fs::read_to_string(dir.join(number.to_string())).expect("a file that is there");
        text.trim().parse().unwrap_or(0)
    };
    let mut random = u64::from(std::process::id()) | 1;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % count
    };
    for round in 0u64.. {
        let (one, two) = (next(), next());
        let (first, second) = (read(one), read(two));
        if second < first {
            writeln!(out, "half: {one} was {first}, then {two} was {second}").expect("out");
        }
        if round % 1000 == 0 {
            writeln!(out, "read").expect("out");
        }
    }
}

fn listen(path: &str) {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
    let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("socket");
    bind(&socket, &SocketAddrUnix::new(path).expect("an address")).expect("bind");
    listen(&socket, 8).expect("listen");
    println!("listens");
    loop {
        thread::sleep(Duration::from_secs(1));
    }
}

fn tick(file: &str, micros: u64) {
    let file = OpenOptions::new().write(true).open(file).expect("file");
    for number in 0u64.. {
        file.write_all_at(format!("{number:020}\n").as_bytes(), 0).expect("write");
        thread::sleep(Duration::from_micros(micros));
    }
}

/// A line for each kind of call: its name, and nanoseconds a call. What only prepares or cleans up is
/// not counted.
fn calls(dir: &Path, count: u32) {
    use rustix::fs::{Access, AtFlags, CWD, Mode, access, linkat, mkdir, stat, unlink, unlinkat};
    const BATCH: u32 = 500;
    let name = |number: u32| dir.join(format!("call{number}"));
    let file = dir.join("file");
    fs::write(&file, [b'x'; 4096]).expect("file");
    let open = OpenOptions::new().read(true).write(true).open(&file).expect("file");
    let mut buffer = [0; 4096];
    type Call<'a> = &'a mut dyn FnMut(u32);
    let measure = |what: &str, before: Call<'_>, call: Call<'_>, after: Call<'_>| {
        let mut took = Duration::ZERO;
        for _ in 0..count.div_ceil(BATCH) {
            (0..BATCH).for_each(&mut *before);
            let start = Instant::now();
            (0..BATCH).for_each(&mut *call);
            took += start.elapsed();
            (0..BATCH).for_each(&mut *after);
        }
        println!("{what} {}", took.as_nanos() / u128::from(count.div_ceil(BATCH) * BATCH));
    };
    let nothing = &mut |_| ();
    let nothing_more = &mut |_| ();
    measure(
        "access",
        nothing,
        &mut |_| access(&file, Access::READ_OK).expect("access"),
        nothing_more,
    );
    measure("stat", nothing, &mut |_| _ = stat(&file).expect("stat"), nothing_more);
    measure("open", nothing, &mut |_| drop(File::open(&file).expect("open")), nothing_more);
    measure(
        "read",
        nothing,
        &mut |_| _ = open.read_at(&mut buffer, 0).expect("read"),
        nothing_more,
    );
    let block = [b'y'; 4096];
    measure("write", nothing, &mut |_| _ = open.write_at(&block, 0).expect("write"), nothing_more);
    let create = &mut |n| drop(File::create(name(n)).expect("create"));
    measure("unlink", create, &mut |n| unlink(name(n)).expect("unlink"), nothing);
    let link = &mut |n| linkat(CWD, &file, CWD, name(n), AtFlags::empty()).expect("link");
    measure("link", nothing, link, &mut |n| unlink(name(n)).expect("unlink"));
    let make = &mut |n| mkdir(name(n), Mode::RWXU).expect("mkdir");
    measure("mkdir", nothing, make, &mut |n| {
        unlinkat(CWD, name(n), AtFlags::REMOVEDIR).expect("rmdir");
    });
    fs::remove_file(&file).expect("remove");
}

#[allow(unsafe_code)] // Reason: a mapping that is shared with a file is what is to be tested.
fn store(file: &str) {
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    let file: File = OpenOptions::new().read(true).write(true).open(file).expect("file");
    // SAFETY: a fresh mapping at an address of the kernel's choice, of a file that is not cut short
    // while this lives.
    let at = unsafe {
        mmap(
            std::ptr::null_mut(),
            1,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            &file,
            0,
        )
    };
    let at = at.expect("a mapping").cast::<u8>();
    let put = |value: u8| {
        // SAFETY: the mapping is writable and holds at least this one byte.
        unsafe { at.write_volatile(value) };
        println!("stored");
    };
    put(b'0');
    for (value, line) in (b'1'..=b'9').cycle().zip(std::io::stdin().lock().lines()) {
        if line.is_err() {
            return;
        }
        put(value);
    }
}
