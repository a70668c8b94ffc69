//! C's names for the functions of `mlx5-verbs`: each symbol is a jump to its function.
//!
//! A name that C has in several versions is a label of its own in each, which Rust cannot express
//! for a function. And `mlx5-verbs` itself defines no name of C's, so a Rust program can use it
//! together with C's library. `cargo xtask verbs` links this archive, with a version script made
//! from the same table.

#![cfg(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

use core::arch::global_asm;

/// A jump to the function `f`.
#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp {f}"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b {f}"
    };
}

/// A symbol in one of its nodes: a unique label, and its name and version.
macro_rules! trampoline {
    (default $node:literal $name:ident $($to:ident)::+) => {
        trampoline!(concat!(stringify!($name), ".", $node), "@@", $node, $name, $($to)::+);
    };
    (hidden $node:literal $name:ident $($to:ident)::+) => {
        trampoline!(concat!(stringify!($name), ".", $node), "@", $node, $name, $($to)::+);
    };
    ($label:expr, $at:literal, $node:literal, $name:ident, $($to:ident)::+) => {
        global_asm!(
            ".pushsection .text.verbs, \"ax\", %progbits",
            concat!(".globl ", $label),
            concat!(".type ", $label, ", %function"),
            concat!(".symver ", $label, ", ", stringify!($name), $at, $node),
            ".p2align 4",
            concat!($label, ":"),
            ".cfi_startproc",
            jump!(),
            ".cfi_endproc",
            concat!(".size ", $label, ", . - ", $label),
            ".popsection",
            f = sym mlx5_verbs::$($to)::+,
        );
    };
}

macro_rules! trampolines {
    ($($kind:ident $node:literal { $($name:ident => $($to:ident)::+,)* })*) => {
        $($(trampoline!($kind $node $name $($to)::+);)*)*
    };
}

macro_rules! zeros {
    ($($name:ident $node:literal $size:literal)*) => {
        $(global_asm!(
            ".pushsection .bss.verbs, \"aw\", %nobits",
            concat!(".globl ", stringify!($name)),
            concat!(".type ", stringify!($name), ", %object"),
            concat!(stringify!($name), ":"),
            concat!(".zero ", $size),
            concat!(".size ", stringify!($name), ", ", $size),
            ".popsection",
        );)*
    };
}

mlx5_verbs_symbols::functions!(trampolines);
mlx5_verbs_symbols::data!(zeros);
