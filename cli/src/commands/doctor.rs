//! `mdl doctor`: which device would compress, and what is missing for a GPU.

use super::prelude::*;
use crate::engine::{choice, engine};
use mdl_codec::Engine;
use mdl_codec_cuda::{Choice, Finding, findings, prepare};

/// Say where tensors would be compressed, and why
///
/// Looks for the CUDA driver, for NVRTC (which compiles the kernels once for each kind of GPU), and runs a kernel on
/// every GPU. All of it is found at run time: the same program works without.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl doctor
  mdl doctor --json | jq .engine
  mdl doctor --compile 90  # for a machine without NVRTC: MDL_KERNEL_CACHE=DIR, here and there")]
pub struct Args {
    /// Compile the kernels for these kinds of GPU (90 for compute capability 9.0) and keep them; needs NVRTC, but no
    /// GPU.
    #[arg(long, value_name = "ARCH", value_delimiter = ',')]
    compile: Vec<u32>,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let mut kept = Vec::new();
    for arch in &args.compile {
        let made = prepare(*arch)
            .map_err(|e| refused(format!("no kernels for sm_{arch}: {e}"), "see the lines of `mdl doctor`"));
        kept.extend(made?);
    }
    let found = findings();
    let choice = choice(context.global.device)?;
    let engine = match choice {
        // What "auto" would come to, once a tensor is worth it.
        Choice::Auto => engine(Choice::Cuda(0)).or_else(|_| engine(Choice::Cpu))?,
        named => engine(named)?,
    };
    if context.global.json {
        let list: Vec<_> = found.iter().map(|f| json!({"what": f.what, "good": f.good, "text": f.text})).collect();
        return context.json(&json!({
            "device": choice.to_string(),
            "engine": engine.name(),
            "threads": rayon::current_num_threads(),
            "findings": list,
            "compiled": kept.iter().map(|p| p.display().to_string()).collect::<Vec<_>>(),
        }));
    }
    show(context, choice, &*engine, &found)?;
    for path in kept {
        writeln!(context.out, "compiled {}", path.display())?;
    }
    Ok(())
}

fn show(context: &mut Context, choice: Choice, engine: &dyn Engine, found: &[Finding]) -> Result<()> {
    let threads = rayon::current_num_threads();
    let mut table = Table::new(&[Align::Left, Align::Left]);
    table.row(vec!["processor".to_owned(), format!("{threads} threads")]);
    for f in found {
        let mark = if f.good { "" } else { "not usable: " };
        table.row(vec![f.what.clone(), format!("{mark}{}", f.text)]);
    }
    context.print(&table.lines(0))?;
    let name = engine.name();
    let text = match (choice, name) {
        (_, "cpu") => format!("{choice}: work is done on the processor"),
        (Choice::Auto, name) => format!("auto: tensors that are worth it go to {name}, the others to the processor"),
        (_, name) => format!("{choice}: work is done on {name}"),
    };
    Ok(writeln!(context.out, "{text}")?)
}
