//! Words of `config`.

use clap::{Args, Subcommand};

/// `config`
#[derive(Debug, Subcommand)]
pub enum Config {
    /// Show a setting and where it comes from.
    Get(Key),
    /// Change a setting in the user's file, or in the project's.
    Set(Set),
    /// Show all settings.
    List,
    /// Show where settings are read from.
    Path,
    /// Let the project's file, as it is now, narrow what is kept.
    Trust,
}

/// `config get`
#[derive(Args, Debug)]
pub struct Key {
    /// The setting's name, such as `limits.new_file`.
    #[arg(value_name = "KEY")]
    pub key: String,
}

/// `config set`
#[derive(Args, Debug)]
pub struct Set {
    /// The setting's name, such as `limits.new_file`.
    #[arg(value_name = "KEY")]
    pub key: String,
    /// The value: `true`, `32MiB`, `10`, a word, or a list such as `a,b`.
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    pub value: String,
    /// Change the project's file, `.backstitch.toml`.
    #[arg(long)]
    pub project: bool,
}
