//! Sandbox by Landlock, a Linux security module.

use crate::process::sandbox::{Needs, Status};
use landlock::{
    ABI, Access, AccessFs, BitFlags, LandlockStatus, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    RulesetStatus, path_beneath_rules,
};

/// The newest version whose rights are asked for: it has all those on files.
const ABI_OF_FILES: ABI = ABI::V5;

/// Lets this thread, and all that it starts, open nothing but this.
pub(super) fn confine(needs: &Needs) -> Result<Status, RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let devices = read | AccessFs::WriteFile | AccessFs::IoctlDev;
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(ABI_OF_FILES))?
        .create()?
        .add_rules(path_beneath_rules(&needs.read, read))?
        .add_rules(path_beneath_rules(&needs.write, written()))?
        .add_rules(path_beneath_rules(&needs.append, AccessFs::WriteFile | AccessFs::MakeReg))?
        .add_rules(path_beneath_rules(&needs.devices, devices | written()))?
        .restrict_self()?;
    Ok(match (status.ruleset, status.landlock) {
        (RulesetStatus::FullyEnforced, LandlockStatus::Available { effective_abi, .. }) => {
            Status::Full(effective_abi as i32)
        }
        (RulesetStatus::PartiallyEnforced, LandlockStatus::Available { effective_abi, .. }) => {
            Status::Partial(effective_abi as i32)
        }
        _ => Status::Absent,
    })
}

/// All that is done in directories of repositories: no programs are run there, no devices, sockets, pipes or links
/// made.
fn written() -> BitFlags<AccessFs> {
    AccessFs::ReadFile
        | AccessFs::ReadDir
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir
        | AccessFs::Refer
}
