//! Points from which a thread goes on: a snapshot's, to which a program comes back, and those at which
//! a [stand-in](crate::stand_in) begins and ends.
//!
//! What a called function must preserve (System V ABI, x86-64) is saved in [`Registers`], and [`resume`]
//! returns from the function that saved it. To the compiler this cannot be told from the return of any function
//! that it calls, as long as memory is what it was then, or what the code after that point expects.
#![allow(unsafe_code)] // registers

use core::arch::naked_asm;

/// What is saved, and where the other task goes on.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Registers {
    /// rbx, rbp, r12 to r15, rsp and rip after the return.
    general: [u64; 8],
    /// mxcsr and the x87 control word.
    control: [u32; 2],
    /// Upper end of the other task's stack.
    pub(crate) other_stack: u64,
    /// What the other task runs; it never returns.
    pub(crate) other_main: u64,
    /// Its argument.
    pub(crate) other_argument: u64,
}

/// Saves the registers into `[rdi]`, at the beginning of a function.
macro_rules! save {
    () => {
        "mov [rdi], rbx
         mov [rdi + 8], rbp
         mov [rdi + 16], r12
         mov [rdi + 24], r13
         mov [rdi + 32], r14
         mov [rdi + 40], r15
         lea rax, [rsp + 8]
         mov [rdi + 48], rax
         mov rax, [rsp]
         mov [rdi + 56], rax
         stmxcsr [rdi + 64]
         fnstcw [rdi + 68]"
    };
}

/// Goes on as the other task of the [`Registers`] in `[r9]`: on a stack of its own, so that nothing of the
/// first one's memory changes.
macro_rules! go_on_as_the_other {
    () => {
        "mov rsp, [r9 + 72]
         mov rdi, [r9 + 88]
         xor ebp, ebp
         call [r9 + 80]
         ud2"
    };
}

/// Saves the registers and forks; the child is the other task. Gives its pid, or a negative error number; and
/// once more, after [`resume`], whatever that was told. Nothing runs between the saving and the fork, so memory
/// as the child has it, the stack included, belongs to exactly these registers.
///
/// # Safety
/// `registers` is valid, lies in memory that the child shares, and has its last three fields filled in.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn fork_here(registers: *mut Registers) -> i64 {
    naked_asm!(
        save!(),
        // clone(0, ...): a fork whose end sends no signal. The call leaves r9 alone.
        "mov r9, rdi",
        "xor edi, edi",
        "xor esi, esi",
        "xor edx, edx",
        "xor r10d, r10d",
        "xor r8d, r8d",
        "mov eax, 56",
        "syscall",
        "test rax, rax",
        "jz 2f",
        "ret",
        "2:",
        go_on_as_the_other!(),
    )
}

/// Makes a thread with a table of descriptors and file system attributes of its own, which returns with 0, on
/// this stack and with these registers; the calling one is the other task. Gives a negative error number if
/// there is none. The kernel writes 0 to `ended`, and wakes who waits there, when the new thread ends.
///
/// # Safety
/// `registers` is valid and has its last three fields filled in; what the other task runs touches nothing that
/// the code after the return uses, until it is asked to.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn split_here(registers: *mut Registers, ended: *const u32) -> i64 {
    naked_asm!(
        "mov r9, rdi",
        "mov r10, rsi",
        // CLONE_VM | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID
        "mov edi, {flags}",
        "xor esi, esi",
        "xor edx, edx",
        "xor r8d, r8d",
        "mov eax, 56",
        "syscall",
        "test rax, rax",
        "jg 2f",
        "ret",
        "2:",
        go_on_as_the_other!(),
        flags = const libc::CLONE_VM
            | libc::CLONE_SIGHAND
            | libc::CLONE_THREAD
            | libc::CLONE_SYSVSEM
            | libc::CLONE_CHILD_CLEARTID,
    )
}

/// Saves the registers, writes `value` to `word`, wakes who waits there (futex(2)), and ends the calling thread.
/// It returns in whichever thread calls [`resume`] then: nothing of this stack is touched after the writing.
///
/// # Safety
/// `registers` and `word` are valid.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn hand_over(
    registers: *mut Registers,
    word: *const u32,
    value: u32,
) -> i64 {
    naked_asm!(
        save!(),
        // futex(word, FUTEX_WAKE, 1), once the word is written.
        "mov rdi, rsi",
        "mov esi, 1",
        "mov eax, edx",
        "mov edx, 1",
        "xchg [rdi], eax",
        "mov eax, 202",
        "syscall",
        // exit(0)
        "xor edi, edi",
        "mov eax, 60",
        "syscall",
        "ud2",
    )
}

/// Returns `value` from the function that saved the registers.
///
/// # Safety
/// Memory is what the code after that return expects.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn resume(registers: *const Registers, value: i64) -> ! {
    naked_asm!(
        "mov rbx, [rdi]",
        "mov rbp, [rdi + 8]",
        "mov r12, [rdi + 16]",
        "mov r13, [rdi + 24]",
        "mov r14, [rdi + 32]",
        "mov r15, [rdi + 40]",
        "ldmxcsr [rdi + 64]",
        "fldcw [rdi + 68]",
        "mov rsp, [rdi + 48]",
        "mov rax, rsi",
        "cld",
        "jmp [rdi + 56]",
    )
}

/// Runs `main` on another stack.
///
/// # Safety
/// `top` is the upper end of a stack that nobody uses, aligned to 16 bytes.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn on_stack(
    top: u64,
    main: unsafe extern "C" fn(u64) -> !,
    argument: u64,
) -> ! {
    naked_asm!("mov rsp, rdi", "xor ebp, ebp", "mov rdi, rdx", "call rsi", "ud2")
}
