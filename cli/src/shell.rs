//! `mlx5 completions`: completion scripts for shells.

use crate::failure::Failure;
use clap::{Arg, Command, ValueHint};
use clap_complete::Shell;
use std::io::Write;

/// `--help`.
pub(crate) const COMPLETIONS: &str = "\
Writes a completion script for a shell to stdout.";

const COMPLETIONS_EXAMPLES: &str = "\
Examples, each with the folder that the shell looks into:
  mkdir -p ~/.local/share/bash-completion/completions
  mlx5 completions bash > ~/.local/share/bash-completion/completions/mlx5

  mkdir -p ~/.zfunc                    ~/.zshrc: fpath+=~/.zfunc; autoload -U compinit; compinit
  mlx5 completions zsh > ~/.zfunc/_mlx5

  mkdir -p ~/.config/fish/completions
  mlx5 completions fish > ~/.config/fish/completions/mlx5.fish

A shell that runs already knows them when it is started again. Bash needs the package
bash-completion.";

/// Options of `mlx5 completions`.
#[derive(clap::Args, Debug)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn completions(
    args: &CompletionsArgs,
    mut command: Command,
    out: &mut impl Write,
) -> Result<(), Failure> {
    // Shells complete file names unless an option says otherwise.
    let plain = |arg: Arg| match arg.get_value_hint() {
        ValueHint::Unknown if arg.get_action().takes_values() => arg.value_hint(ValueHint::Other),
        _ => arg,
    };
    for command in command.get_subcommands_mut() {
        *command = std::mem::take(command).mut_args(plain);
    }
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "mlx5", &mut script);
    Ok(out.write_all(&script)?)
}
