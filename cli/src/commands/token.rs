//! `mdl token`: who may do what with a server.

use super::{prelude::*, shared::parse_age};
use crate::render::rfc3339_ms;
use jiff::{SignedDuration, Timestamp};
use mdl_server::{
    Options,
    auth::{NewToken, Scope, Token, Tokens},
};

/// Make, list and revoke the tokens of a server
///
/// A token is shown once, when it is made; what is stored is a hash. A running server takes changes up at once.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl token create --root models --name ci --repo 'ada/*' --scope write --expires 90d
  mdl token list --root models
  mdl token revoke --root models 4f3a09c1d2e8")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Make a token, and show it
    Create {
        #[command(flatten)]
        place: Place,
        /// Whose it is, or what for: the author of what is committed with it.
        #[arg(long)]
        name: String,
        /// The repositories it is good for: a glob over OWNER/NAME, where * stops at /; ** means all.
        #[arg(long, value_name = "GLOB")]
        // A path, since it goes by the name of the global option that it stands in for here.
        repo: PathBuf,
        /// What it allows: read, write (commit, move refs) or admin (make repositories, settings, maintenance,
        /// webhooks).
        #[arg(long, default_value = "read")]
        scope: Scope,
        /// When it ends to be good: in 90d, 12h, 30m, or never.
        #[arg(long, value_name = "DURATION", default_value = "90d")]
        expires: String,
    },
    /// List the tokens
    List {
        #[command(flatten)]
        place: Place,
    },
    /// Make a token good for nothing
    Revoke {
        #[command(flatten)]
        place: Place,
        /// As `mdl token list` shows it.
        id: String,
    },
}

#[derive(Debug, clap::Args)]
struct Place {
    /// The served directory.
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,
    /// The server's own directory. Default: .mdl-serve below --root.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

impl Place {
    fn tokens(&self) -> Result<Tokens> {
        let options = Options { state: self.state.clone(), ..Options::new(&self.root) };
        Ok(Tokens::new(&options.state_dir()?))
    }
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    match &args.what {
        What::Create { place, name, repo, scope, expires } => {
            let new = NewToken {
                name: name.clone(),
                repo: repo.to_string_lossy().into_owned(),
                scope: *scope,
                expires_ms: end(expires)?,
            };
            let (token, shown) = place.tokens()?.create(new)?;
            if context.global.json {
                let mut document = document(&token);
                document["token"] = shown.into();
                return context.json(&document);
            }
            writeln!(context.out, "{shown}")?;
            context.note(&format!("it is not shown again; `mdl token revoke {}` ends it", token.id));
            Ok(())
        }
        What::List { place } => list(context, &place.tokens()?),
        What::Revoke { place, id } => Ok(place.tokens()?.revoke(id)?),
    }
}

/// Seconds that a token may last: about 1,900 years.
const MOST: u64 = 3600 << 24;

/// When a token ends: `90d` from now; none for `never`.
fn end(text: &str) -> Result<Option<i64>> {
    if text == "never" {
        return Ok(None);
    }
    let bad = || CliError::usage(format!("--expires {text}: not a duration"), "such as 90d, 12h, 30m, or never");
    // A number alone could be of any unit.
    let sound = text.starts_with(|c: char| c.is_ascii_digit()) && text.ends_with(['d', 'h', 'm']);
    let seconds = parse_age(text).ok().filter(|s| sound && *s < MOST);
    let duration = seconds.and_then(|s| i64::try_from(s).ok()).map(SignedDuration::from_secs);
    let end = Timestamp::now().checked_add(duration.ok_or_else(bad)?).map_err(|_| bad())?;
    Ok(Some(end.as_millisecond()))
}

fn document(t: &Token) -> Value {
    json!({
        "id": t.id,
        "name": t.name,
        "repo": t.repo,
        "scope": t.scope.name(),
        "created": rfc3339_ms(t.created_ms),
        "expires": t.expires_ms.map(rfc3339_ms),
    })
}

fn list(context: &mut Context, tokens: &Tokens) -> Result<()> {
    let all = tokens.all()?;
    if context.global.json {
        return context.json(&all.iter().map(|t| document(t)).collect::<Vec<_>>());
    }
    let mut table = Table::new(&[Align::Left; 5]);
    table.row(["id", "name", "repositories", "scope", "expires"].map(|h| context.paint.dim(h)));
    for t in &all {
        let expires = t.expires_ms.map_or_else(|| "never".to_owned(), rfc3339_ms);
        table.row([t.id.clone(), visible(&t.name), visible(&t.repo), t.scope.name().to_owned(), expires]);
    }
    context.print(&table.lines(0))
}
