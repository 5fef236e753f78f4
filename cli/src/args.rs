//! Command line arguments: the global options and the list of commands.

use crate::commands::Verb;
use clap::{Args, Parser, ValueEnum};
use mdl_codec_cuda::Choice;
use std::{ffi::OsString, path::PathBuf};

const AFTER: &str = "\
Revisions: a branch, a tag or the first digits of an id; behind it ~N (N-th ancestor), ^N (N-th parent), @{N} (N \
moves ago), @step=N, @min(METRIC), @max(METRIC), @best(METRIC), @worst(METRIC). HEAD is the present commit; \
main@best(loss) the version of main with the lowest loss. Best is the least of a metric whose name holds loss, ppl, \
perplexity, err, error, wer, cer, rmse, mae, mse, nll, bpb, bpc, fid or kl, the greatest of one that holds acc, \
accuracy, f1, bleu, rouge, auc, map, score, reward, psnr, ssim, iou or r2; for other names say @min or @max.

Exit codes: 0 done, 1 refused, 2 wrong usage, 3 not found, 4 moved meanwhile, 5 damaged data, 6 input/output.

A first version:
  mdl init
  mdl commit -m \"first checkpoint\" --step 1000 --metric loss=0.41
  mdl log";

/// Versions model checkpoints as git versions code: every version comes back bit for bit, stored as small as its
/// difference to the one before.
#[derive(Debug, Parser)]
#[command(name = "mdl", version, long_version = env!("MDL_LONG_VERSION"), after_help = AFTER, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub verb: Verb,
}

/// Options of every verb.
#[derive(Args, Clone, Debug)]
pub struct Global {
    /// Repository to work on: its work tree or its own directory. Default: MDL_REPO where it is set, else the one
    /// around the current directory.
    #[arg(long, global = true, value_name = "DIR", help_heading = "Global options")]
    pub repo: Option<PathBuf>,
    /// Where to compress: `auto` (a GPU where there is one and the tensors are worth it), `cpu`, `cuda` or `cuda:N`.
    /// The bytes are the same. Default: MDL_DEVICE where it is set, else auto.
    #[arg(long, global = true, value_name = "DEVICE", help_heading = "Global options")]
    pub device: Option<Choice>,
    /// Print one JSON document for programs: sizes in bytes, ids in full. Errors become JSON on standard error.
    #[arg(long, global = true, help_heading = "Global options")]
    pub json: bool,
    /// When to colour: `auto` means on a terminal and without NO_COLOR.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", help_heading = "Global options")]
    pub color: Color,
    /// Say nothing but errors and what was asked for; no progress bars.
    #[arg(short, long, global = true, help_heading = "Global options")]
    pub quiet: bool,
}

/// When to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    Auto,
    Always,
    Never,
}

/// A revision argument. An empty one is nearly always a shell variable that was never set, and must not mean HEAD.
pub fn revision(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("a revision is wanted (is a shell variable empty?)".to_owned());
    }
    Ok(text.to_owned())
}

/// `log -3` is `log -n 3`, as in git.
pub fn as_git_takes_them(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let (mut out, mut in_log) = (Vec::new(), false);
    for arg in args {
        let text = arg.to_str().unwrap_or_default();
        let digits = text.strip_prefix('-').filter(|d| !d.is_empty());
        match digits.filter(|d| in_log && d.bytes().all(|b| b.is_ascii_digit())) {
            Some(digits) => out.extend(["-n".into(), digits.into()]),
            None => {
                in_log = text != "--" && (in_log || text == "log");
                out.push(arg);
            }
        }
    }
    out
}
