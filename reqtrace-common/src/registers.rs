//! Registers of x86-64: names in, places in the kernel's `pt_regs` out.

/// A general register, by its index in the kernel's `struct pt_regs` (arch/x86/include/asm/ptrace.h),
/// in words of 8 bytes. That order is part of the user ABI: ptrace and uprobes show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Register {
    /// `%r15`
    R15 = 0,
    /// `%r14`
    R14 = 1,
    /// `%r13`
    R13 = 2,
    /// `%r12`
    R12 = 3,
    /// `%rbp`
    Rbp = 4,
    /// `%rbx`
    Rbx = 5,
    /// `%r11`
    R11 = 6,
    /// `%r10`
    R10 = 7,
    /// `%r9`
    R9 = 8,
    /// `%r8`
    R8 = 9,
    /// `%rax`
    Rax = 10,
    /// `%rcx`
    Rcx = 11,
    /// `%rdx`
    Rdx = 12,
    /// `%rsi`
    Rsi = 13,
    /// `%rdi`
    Rdi = 14,
    /// `%rip`: at a uprobe the address of the probed instruction.
    Rip = 16,
    /// `%rsp`
    Rsp = 19,
}

/// All registers with the names of their parts of 8, 4, 2 and 1 byte, and the high byte of the
/// second where there is one.
const NAMES: &[(Register, [&str; 5])] = &[
    (Register::Rax, ["rax", "eax", "ax", "al", "ah"]),
    (Register::Rbx, ["rbx", "ebx", "bx", "bl", "bh"]),
    (Register::Rcx, ["rcx", "ecx", "cx", "cl", "ch"]),
    (Register::Rdx, ["rdx", "edx", "dx", "dl", "dh"]),
    (Register::Rsi, ["rsi", "esi", "si", "sil", ""]),
    (Register::Rdi, ["rdi", "edi", "di", "dil", ""]),
    (Register::Rbp, ["rbp", "ebp", "bp", "bpl", ""]),
    (Register::Rsp, ["rsp", "esp", "sp", "spl", ""]),
    (Register::R8, ["r8", "r8d", "r8w", "r8b", ""]),
    (Register::R9, ["r9", "r9d", "r9w", "r9b", ""]),
    (Register::R10, ["r10", "r10d", "r10w", "r10b", ""]),
    (Register::R11, ["r11", "r11d", "r11w", "r11b", ""]),
    (Register::R12, ["r12", "r12d", "r12w", "r12b", ""]),
    (Register::R13, ["r13", "r13d", "r13w", "r13b", ""]),
    (Register::R14, ["r14", "r14d", "r14w", "r14b", ""]),
    (Register::R15, ["r15", "r15d", "r15w", "r15b", ""]),
    (Register::Rip, ["rip", "eip", "", "", ""]),
];

impl Register {
    /// The registers of the first integer arguments of a function (System V AMD64 ABI, 3.2.3).
    pub const ARGUMENTS: [Self; 6] = [
        Self::Rdi,
        Self::Rsi,
        Self::Rdx,
        Self::Rcx,
        Self::R8,
        Self::R9,
    ];

    /// The registers of the first words of arguments of a function of Go (ABIInternal).
    pub const ARGUMENTS_OF_GO: [Self; 9] = [
        Self::Rax,
        Self::Rbx,
        Self::Rcx,
        Self::Rdi,
        Self::Rsi,
        Self::R8,
        Self::R9,
        Self::R10,
        Self::R11,
    ];

    /// A register by the name of it or a part of it, without `%`, and by how many bits its value
    /// has to be shifted down: 8 for `ah`, `bh`, `ch` and `dh`.
    #[must_use]
    pub fn named(name: &str) -> Option<(Self, u8)> {
        NAMES.iter().find_map(|(register, parts)| {
            let part = parts
                .iter()
                .position(|part| !part.is_empty() && *part == name)?;
            Some((*register, if part == 4 { 8 } else { 0 }))
        })
    }

    /// Its index in `pt_regs`, in words of 8 bytes.
    #[must_use]
    pub const fn index(self) -> u8 {
        self as u8
    }
}
