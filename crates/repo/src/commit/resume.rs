//! Tells what a run resumed from a version gets back, from the names of files and tensors.
//!
//! Names are those that frameworks write: Hugging Face Trainer (`optimizer.pt`, `rng_state.pth`), Accelerate
//! (`optimizer.bin`, `random_states_0.pkl`), DeepSpeed (`*_optim_states.pt`), Lightning (`optimizer_states` in a
//! `.ckpt`), Composer (`state.optimizers`, `rng`), Megatron (`model_optim_rng.pt`, whose name says nothing: what is in
//! it does), `torch.save({"model": ..., "optimizer": ..., "rng": ...})`. Where names leave it open the lesser label is
//! given: a run must not be told that it resumes exactly when it does not.

use crate::commit::new_file::{Content, NewFile};
use mdl_codec::quant::moments::moment_of;
use mdl_files::{FileSource, scan};
use mdl_lossy::Quality;
use mdl_objects::{Entry, Kind, Mode, Resume};
use mdl_store::{
    Result,
    object_db::{Files, Odb},
};
use std::path::Path;

/// Endings of files that hold state; an `optimizer.yaml` says how it was set up.
const STATE: [&str; 11] =
    ["pt", "pth", "bin", "ckpt", "safetensors", "npz", "npy", "pkl", "pickle", "distcp", "msgpack"];
/// All the words that the name of a directory of state may have: `optimizer-study` is an experiment.
const DIRS: [&str; 9] = ["", "optimizer", "optimizers", "optim", "opt", "state", "states", "rng", "random"];
/// Parts of a tensor's name, from the front, that may say whose it is: `state.optimizers.Adam...`.
const LEADING: usize = 2;
/// Words of the first part of a tensor's name that say it is a weight.
const MODEL_WORDS: [&str; 6] = ["model", "module", "modules", "params", "weights", "ema"];

/// What a version has of what a run goes on from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ResumeParts {
    weights: bool,
    optimizer: bool,
    random: bool,
}

/// The label of a version; none if nothing in it has tensors.
pub(crate) fn derive(odb: &Odb, list: &[NewFile], files: &Files, quality: Option<&Quality>) -> Option<Resume> {
    let mut found = ResumeParts::default();
    let mut tensors = false;
    for file in list {
        let Some(entry) = files.get(&file.rel) else { continue };
        let names = names(odb, file, entry);
        tensors |= !names.is_empty();
        found.path(&file.rel, !names.is_empty());
        for name in names {
            found.tensor(&name, &file.rel);
        }
    }
    tensors.then(|| found.label(lossless(quality)))
}

/// A label that the caller gave, lowered to what the stored files support.
pub(crate) fn given(label: Resume, quality: Option<&Quality>) -> Resume {
    if lossless(quality) { label } else { label.min(Resume::Approximate) }
}

fn lossless(quality: Option<&Quality>) -> bool {
    quality.is_none_or(|q| q.family == "lossless" && q.moments == "exact")
}

/// Names of tensors and views in a file. The manifest of a new file is in a pack that cannot be read yet.
fn names(odb: &Odb, file: &NewFile, entry: &Entry) -> Vec<String> {
    if entry.mode != Mode::Manifest {
        return Vec::new();
    }
    if odb.contains_kind(&entry.id, Kind::Manifest).is_ok_and(|known| known)
        && let Ok(names) = stored_names(odb, entry)
    {
        return names;
    }
    let rel = Path::new(&file.rel);
    let layout = match &file.content {
        Content::Disk(path) => FileSource::open(path).ok().and_then(|source| scan(&source, rel).ok()),
        Content::Memory(source) => scan(&**source, rel).ok(),
        Content::Stored(_) => None,
    };
    let Some(layout) = layout else { return Vec::new() };
    let views = layout.views.into_iter().map(|v| v.name);
    layout.extents.into_iter().map(|t| t.name).chain(views).collect()
}

/// The same of a file that is stored.
fn stored_names(odb: &Odb, entry: &Entry) -> Result<Vec<String>> {
    if entry.mode != Mode::Manifest {
        return Ok(Vec::new());
    }
    let manifest = odb.manifest(&entry.id)?;
    let views = manifest.views.into_iter().map(|v| v.name);
    Ok(manifest.tensors.into_iter().map(|t| t.name).chain(views).collect())
}

/// What a file is to a run that goes on from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileRole {
    /// Weights, or tensors that nothing is known of.
    Weights,
    /// State of the optimizer, or random state, and no weights.
    State,
    /// Weights and state of the optimizer.
    Mixed,
    /// It has no tensors, and its name says nothing.
    Other,
}

/// What a stored file is to a run that goes on from it, by the names of the file and of its tensors. Where they leave
/// it open it has weights: these must not be taken for state.
///
/// # Errors
/// Its manifest is not there or damaged; an I/O error.
pub(crate) fn role_of_file(odb: &Odb, rel: &str, entry: &Entry) -> Result<FileRole> {
    Ok(role_by_names(rel, &stored_names(odb, entry)?))
}

fn role_by_names(rel: &str, names: &[String]) -> FileRole {
    if role_of_path(rel).is_some() {
        return if names.iter().any(|name| is_of_model(name)) { FileRole::Mixed } else { FileRole::State };
    }
    let roles = || names.iter().map(|name| role_of_tensor(name));
    match names {
        [] => FileRole::Other,
        _ if roles().all(|role| role.is_some()) => FileRole::State,
        _ if roles().any(|role| role == Some(Role::Optimizer)) => FileRole::Mixed,
        _ => FileRole::Weights,
    }
}

/// Whether a tensor is state of the optimizer or of a random generator, by its name.
pub(crate) fn is_state(tensor: &str) -> bool {
    role_of_tensor(tensor).is_some()
}

/// Whether a tensor is one of a model that was saved beside something else: `model.layers.0.weight`.
fn is_of_model(name: &str) -> bool {
    let first = name.split(['.', '/', '|']).next().unwrap_or_default();
    let has_word = words(first).iter().any(|word| MODEL_WORDS.contains(&word.as_str()));
    role_of_tensor(name).is_none() && (first == "state_dict" || has_word)
}

impl ResumeParts {
    fn path(&mut self, rel: &str, tensors: bool) {
        let role = role_of_path(rel);
        self.optimizer |= role == Some(Role::Optimizer);
        self.random |= role == Some(Role::Random);
        self.weights |= tensors && role.is_none();
    }

    fn tensor(&mut self, name: &str, rel: &str) {
        match role_of_tensor(name) {
            // A file of moments is no file of random states, but one file may hold both.
            Some(Role::Optimizer) => self.optimizer = true,
            Some(Role::Random) if role_of_path(rel) != Some(Role::Optimizer) => self.random = true,
            _ => {}
        }
    }

    fn label(self, lossless: bool) -> Resume {
        match self {
            ResumeParts { optimizer: false, .. } => Resume::WeightsOnly,
            ResumeParts { weights: true, random: true, .. } if lossless => Resume::Exact,
            _ => Resume::Approximate,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Optimizer,
    Random,
}

fn words(text: &str) -> Vec<String> {
    let parts = text.split(|c: char| !c.is_ascii_alphanumeric());
    parts.map(|word| word.trim_end_matches(|c: char| c.is_ascii_digit()).to_ascii_lowercase()).collect()
}

/// What words separated by `_`, `-` or dots name.
fn role(words: &[String]) -> Option<Role> {
    let has = |word: &str| words.iter().any(|w| w == word);
    let pair = |a: &str, b: &str| words.windows(2).any(|w| w[0] == a && w[1].starts_with(b));
    if has("model") {
        // One of everything, or nothing but weights.
        None
    } else if has("rng") || pair("random", "state") {
        Some(Role::Random)
    } else if has("optimizer") || has("optimizers") || has("optim") || pair("opt", "state") {
        Some(Role::Optimizer)
    } else {
        None
    }
}

/// What a file holds by its path: its own name, or that of a directory it is in (`optimizer_0/__0_0.distcp`).
fn role_of_path(rel: &str) -> Option<Role> {
    let path = Path::new(rel);
    let ending = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
    let ending = ending.to_ascii_lowercase();
    let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
    let found = role(&words(stem)).or_else(|| {
        let above = path.parent().into_iter().flat_map(Path::components);
        let mut above = above.map(|dir| words(dir.as_os_str().to_str().unwrap_or_default()));
        above.find_map(|words| role(&words).filter(|_| words.iter().all(|w| DIRS.contains(&w.as_str()))))
    });
    // Numpy's generators are saved as JSON.
    let state = STATE.contains(&ending.as_str()) || found == Some(Role::Random) && ending == "json";
    found.filter(|_| state || ending.is_empty())
}

/// Whose a tensor is by its name.
fn role_of_tensor(name: &str) -> Option<Role> {
    let mut parts = name.split(['.', '/', '|']).take(LEADING);
    let found = parts.find_map(|part| role(&words(part)));
    found.or_else(|| moment_of(name).map(|_| Role::Optimizer))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(files: &[(&str, &[&str])]) -> Resume {
        let mut found = ResumeParts::default();
        for (rel, tensors) in files {
            found.path(rel, !tensors.is_empty());
            tensors.iter().for_each(|name| found.tensor(name, rel));
        }
        found.label(true)
    }

    const MODEL: (&str, &[&str]) = ("model.safetensors", &["layers.0.weight"]);

    #[test]
    fn directories_of_frameworks() {
        let trainer = ["optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"].map(|f| (f, &[][..]));
        let all: Vec<_> = [MODEL].into_iter().chain(trainer).collect();
        assert_eq!(label(&all), Resume::Exact);
        assert_eq!(label(&all[..3]), Resume::Approximate);
        assert_eq!(label(&[MODEL, ("scheduler.bin", &[])]), Resume::WeightsOnly);
        let accelerate = [MODEL, ("optimizer.bin", &[]), ("random_states_0.pkl", &[])];
        assert_eq!(label(&accelerate), Resume::Exact);
        let deepspeed = [
            ("global_step5/mp_rank_00_model_states.pt", &["module.w"][..]),
            ("global_step5/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", &["x.y"]),
            ("rng_state_0.pth", &["cpu"]),
        ];
        assert_eq!(label(&deepspeed), Resume::Exact);
        assert_eq!(label(&deepspeed[..2]), Resume::Approximate);
        let sharded = [("pytorch_model_0/__0_0.distcp", &["w"][..]), ("optimizer_0/__0_0.distcp", &[])];
        assert_eq!(label(&sharded), Resume::Approximate);
        assert_eq!(label(&[("optimizer.safetensors", &["0.exp_avg"])]), Resume::Approximate);
    }

    #[test]
    fn files_that_hold_everything() {
        let lightning = ["state_dict.layer.weight", "optimizer_states.0.state.0.exp_avg"];
        assert_eq!(label(&[("epoch=1-step=500.ckpt", &lightning)]), Resume::Approximate);
        assert_eq!(label(&[("x.ckpt", &lightning[..1])]), Resume::WeightsOnly);
        let plain = ["model.w", "optimizer.state.0.exp_avg", "rng"];
        assert_eq!(label(&[("last.pt", &plain)]), Resume::Exact);
        assert_eq!(label(&[("last.pt", &plain[..2])]), Resume::Approximate);
        let composer = ["state.model.w", "state.optimizers.DecoupledAdamW.state.w.exp_avg", "rng.0.torch"];
        assert_eq!(label(&[("ep1-ba100-rank0.pt", &composer)]), Resume::Exact);
        let megatron = ["model.embedding.w", "optimizer.optimizer.state.0.exp_avg", "rng_state.0.torch_rng_state"];
        assert_eq!(label(&[("iter_0000100/mp_rank_00/model_optim_rng.pt", &megatron)]), Resume::Exact);
        assert_eq!(label(&[("model_optim_rng.pt", &megatron[..1])]), Resume::WeightsOnly);
    }

    #[test]
    fn names_that_only_look_like_it() {
        for rel in
            ["optimizer.yaml", "rng.md", "optimization_model.pt", "opt-125m.bin", "string.pt", "optimizer-study/w.pt"]
        {
            assert_eq!(role_of_path(rel), None, "{rel}");
        }
        assert_eq!(role_of_path("rng.json"), Some(Role::Random));
        assert_eq!(role_of_path("opt_state/d/0"), Some(Role::Optimizer));
        // A layer may be called anything further in.
        assert_eq!(role_of_tensor("model.encoder.optimizer.weight"), None);
        assert_eq!(role_of_tensor("state.0.momentum_buffer"), Some(Role::Optimizer));
    }

    #[test]
    fn only_files_without_weights_are_state() {
        let role = |rel, names: &[&str]| {
            let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
            role_by_names(rel, &names)
        };
        for rel in ["optimizer.pt", "rng_state_0.pth", "random_states_0.pkl", "optimizer_0/__0_0.distcp"] {
            assert_eq!(role(rel, &[]), FileRole::State, "{rel}");
        }
        // By the names of parameters, of which one may have a model in it.
        let moments = ["state.model.layers.0.weight.exp_avg", "state.model.layers.0.weight.step", "state.0.step"];
        assert_eq!(role("optimizer.bin", &moments), FileRole::State);
        assert_eq!(role("x.safetensors", &moments[..1]), FileRole::State);
        assert_eq!(role("x.safetensors", &moments), FileRole::Mixed);
        for name in ["model.layers.0.weight", "state_dict.w", "ema_model.w", "module.w", "params.w"] {
            assert_eq!(role("optimizer.pt", &["state.0.exp_avg", name]), FileRole::Mixed, "{name}");
        }
        assert_eq!(role("last.pt", &["model.w", "optimizer.state.0.exp_avg", "rng"]), FileRole::Mixed);
        assert_eq!(role("last.pt", &["model.w", "rng"]), FileRole::Weights);
        assert_eq!(role("model_optim_rng.pt", &["model.w", "optimizer.state.0.exp_avg"]), FileRole::Mixed);
        for rel in ["model.safetensors", "opt-125m.bin", "optimizer-study/w.pt"] {
            assert_eq!(role(rel, &["layers.0.weight"]), FileRole::Weights, "{rel}");
        }
        assert_eq!(role("optimizer.yaml", &[]), FileRole::Other);
    }

    #[test]
    fn what_is_lossy_does_not_resume_exactly() {
        let all = ResumeParts { weights: true, optimizer: true, random: true };
        assert_eq!(all.label(false), Resume::Approximate);
        assert_eq!(all.label(true), Resume::Exact);
    }
}
