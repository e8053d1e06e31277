//! The point to which a program comes back.
//!
//! `fork_here` saves what a called function must preserve (System V ABI, x86-64), makes the snapshot, and
//! returns; `resume` makes it return once more. Nothing runs between the saving and the fork, so memory as
//! the snapshot has it, the stack included, belongs to exactly these registers: to the compiler the second
//! return cannot be told from the first, but for the value.

use core::arch::naked_asm;

/// What is saved, and where the snapshot goes on.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Registers {
    /// rbx, rbp, r12 to r15, rsp and rip after the return.
    general: [u64; 8],
    /// mxcsr and the x87 control word.
    control: [u32; 2],
    /// Upper end of the snapshot's stack.
    pub(super) snapshot_stack: u64,
    /// What the snapshot runs; it never returns.
    pub(super) snapshot_main: u64,
    /// Its argument.
    pub(super) snapshot_argument: u64,
}

/// Saves the registers and forks. Gives the pid of the snapshot, or a negative error number; and once more,
/// after [`resume`], whatever that was told.
///
/// # Safety
/// `registers` is valid, lies in memory that the snapshot shares, and has its last three fields filled in.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn fork_here(registers: *mut Registers) -> i64 {
    naked_asm!(
        "mov [rdi], rbx",
        "mov [rdi + 8], rbp",
        "mov [rdi + 16], r12",
        "mov [rdi + 24], r13",
        "mov [rdi + 32], r14",
        "mov [rdi + 40], r15",
        "lea rax, [rsp + 8]",
        "mov [rdi + 48], rax",
        "mov rax, [rsp]",
        "mov [rdi + 56], rax",
        "stmxcsr [rdi + 64]",
        "fnstcw [rdi + 68]",
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
        // The snapshot: on a stack of its own, so that nothing of the program's memory changes in it.
        "2:",
        "mov rsp, [r9 + 72]",
        "mov rdi, [r9 + 88]",
        "xor ebp, ebp",
        "call [r9 + 80]",
        "ud2",
    )
}

/// Makes [`fork_here`] return `value`.
///
/// # Safety
/// Memory is as it was when `fork_here` forked with these registers.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn resume(registers: *const Registers, value: i64) -> ! {
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
pub(super) unsafe extern "C" fn on_stack(
    top: u64,
    main: unsafe extern "C" fn(u64) -> !,
    argument: u64,
) -> ! {
    naked_asm!("mov rsp, rdi", "xor ebp, ebp", "mov rdi, rdx", "call rsi", "ud2")
}
