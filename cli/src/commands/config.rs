//! `mdl config`: shows and changes settings.

use super::prelude::*;
use mdl_repo::KNOWN_SETTINGS;

/// Show or change settings of the repository
///
/// Without arguments: all settings, their values and what they mean. Settings that are not made in the repository come
/// from ~/.config/mdl/config.toml, else from their defaults.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl config user.name \"Ada Lovelace\"
  mdl config delta.max_depth 8
  mdl config --unset delta.max_depth")]
pub struct Args {
    /// Setting, such as user.name.
    key: Option<String>,
    /// New value.
    #[arg(requires = "key")]
    value: Option<String>,
    /// Remove KEY's setting from the repository.
    #[arg(long, requires = "key", conflicts_with = "value")]
    unset: bool,
    /// List only what is set in the repository.
    #[arg(short, long, conflicts_with = "key")]
    list: bool,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let mut repo = context.repo()?;
    let Some(key) = &args.key else {
        return list(context, &repo, args.list);
    };
    if args.unset || args.value.is_some() {
        repo.set_config(key, args.value.as_deref())?;
        return context.emit(&json!({"key": key, "value": repo.config().get(key)}), b"");
    }
    let value = repo.config().get(key).ok_or_else(|| missing(key))?;
    context.emit(&json!({"key": key, "value": value}), format!("{value}\n").as_bytes())
}

fn missing(key: &str) -> CliError {
    if KNOWN_SETTINGS.iter().any(|k| k.0 == key) {
        return not_found(Missing::Setting, format!("{key} (it has no value)"));
    }
    let keys: Vec<&str> = KNOWN_SETTINGS.iter().map(|k| k.0).collect();
    CliError::usage(format!("there is no setting {key:?}"), format!("settings are {}", keys.join(", ")))
}

fn list(context: &mut Context, repo: &Repo, only_made: bool) -> Result<()> {
    let (made, get) = (repo.config().entries(), |key: &str| repo.config().get(key));
    let is_made = |key: &str| made.iter().any(|m| m.0 == key);
    if context.global.json {
        let all = KNOWN_SETTINGS.iter().filter(|k| !only_made || is_made(k.0));
        let rows = all.map(|(key, default, help)| {
            json!({"key": key, "value": get(key), "default": default, "set_here": is_made(key), "help": help})
        });
        return context.json(&json!({"settings": rows.collect::<Vec<_>>()}));
    }
    if only_made {
        return context.print(&made.iter().map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>());
    }
    let mut table = Table::new(&[Align::Left, Align::Left, Align::Left]);
    for (key, _, help) in KNOWN_SETTINGS {
        let value = get(key).unwrap_or_else(|| "-".to_owned());
        table.row([key.to_owned(), value, context.paint.dim(help)]);
    }
    context.print(&table.lines(0))
}
