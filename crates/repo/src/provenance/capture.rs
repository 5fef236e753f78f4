//! Captures provenance: what is told, what the process knows, and what git says of the code.

use crate::provenance::{
    Dataset, Environment, Provenance, VERSION, Wanted,
    code::code_in,
    redact::{redacted, redacted_command},
};
use mdl_store::Result;
use std::{collections::BTreeMap, env, path::Path, thread};

/// Variables that say how a run was set up. Others may hold secrets, and say more about the user than about the run.
const VARIABLES: [&str; 9] = [
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "WORLD_SIZE",
    "RANK",
    "LOCAL_RANK",
    "OMP_NUM_THREADS",
    "PYTHONHASHSEED",
    "SLURM_JOB_ID",
    "CUBLAS_WORKSPACE_CONFIG",
];
/// Characters of a variable, and bytes of an argument and of all arguments that are kept. What is captured without
/// being looked at must not keep a version from being stored.
const VARIABLE: usize = 256;
const ARGUMENT: usize = 4 << 10;
const COMMAND: usize = 64 << 10;
/// In place of what is left out.
const CUT: &str = "[...]";

/// Says where a version comes from that is made now in this directory.
///
/// # Errors
/// A data set cannot be read, or is not told of rightly. Where there is no git, or no repository, nothing is said of
/// the code.
pub fn capture(directory: &Path, wanted: &Wanted) -> Result<Provenance> {
    let home = env::var("HOME").ok();
    Ok(Provenance {
        version: VERSION,
        code: code_in(directory),
        command: shortened(redacted_command(&wanted.command, home.as_deref())),
        environment: Environment {
            mdl: env!("CARGO_PKG_VERSION").to_owned(),
            os: env::consts::OS.to_owned(),
            arch: env::consts::ARCH.to_owned(),
            cpus: thread::available_parallelism().map_or(0, usize::from),
            packages: wanted.packages.clone(),
            devices: wanted.devices.clone(),
            variables: variables(home.as_deref()),
        },
        datasets: wanted.datasets.iter().map(|text| Dataset::read(text)).collect::<Result<_>>()?,
    })
}

fn variables(home: Option<&str>) -> BTreeMap<String, String> {
    let set = |name: &&str| {
        let value = redacted(&env::var(name).ok()?, home);
        Some(((*name).to_owned(), value.chars().take(VARIABLE).collect()))
    };
    VARIABLES.iter().filter_map(set).collect()
}

fn shortened(command: Vec<String>) -> Vec<String> {
    let (mut out, mut len) = (Vec::new(), 0);
    for mut argument in command {
        if argument.len() > ARGUMENT {
            argument.truncate(argument.floor_char_boundary(ARGUMENT));
            argument.push_str(CUT);
        }
        len += argument.len();
        if len > COMMAND {
            out.push(CUT.to_owned());
            break;
        }
        out.push(argument);
    }
    out
}
