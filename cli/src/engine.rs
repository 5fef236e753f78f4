//! Chooses the compression engine: CPU or GPU.

use crate::{commands::refused, errors::Result};
use mdl_codec::Engine;
use mdl_codec_cuda::Choice;
use mdl_repo::RepoError;
use std::{env, sync::Arc};

/// Environment variable: the device to compress on, if no option names one.
const DEVICE: &str = "MDL_DEVICE";

/// Returns the choice of the option, else of the environment, else automatic.
pub fn choice(option: Option<Choice>) -> Result<Choice> {
    // Empty counts as not set.
    let named = || env::var(DEVICE).ok().filter(|v| !v.is_empty());
    match (option, named()) {
        (Some(choice), _) => Ok(choice),
        (None, Some(text)) => text.parse().map_err(|why| {
            let what = format!("{DEVICE} is {text:?}: {why}");
            RepoError::usage(what, "set it to auto, or to nothing").into()
        }),
        (None, None) => Ok(Choice::Auto),
    }
}

pub fn engine(choice: Choice) -> Result<Arc<dyn Engine>> {
    let hint = "`mdl doctor` says what is there; `--device auto` does without a GPU where there is none";
    mdl_codec_cuda::engine(choice).map_err(|why| refused(format!("no work on {choice}: {why}"), hint))
}
