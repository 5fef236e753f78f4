//! Hints that name mdl's commands and options: what problem documents and the command line say beside an error.

use mdl_repo::{Refusal, Remedy, RepoError, Unchanged};

/// What the caller may do about an error, in the words of the command line.
pub fn hint(error: &RepoError) -> Option<String> {
    let text = match error {
        RepoError::User { hint, .. } | RepoError::Usage { hint, .. } => return remedy(hint).or_else(|| error.hint()),
        RepoError::NothingToCommit(Unchanged::SameFiles) => {
            "pass --allow-empty (or a --step, --metric or --meta) to commit all the same".to_owned()
        }
        RepoError::NothingToCommit(Unchanged::NoFiles { .. }) => {
            "put checkpoints there first; --allow-empty commits a version without files".to_owned()
        }
        RepoError::Pruned { .. } => {
            "its message, step and metrics are kept: see `mdl log`; versions not marked as pruned there are whole"
                .to_owned()
        }
        RepoError::Protected { refusal, .. } if matches!(**refusal, Refusal::Unsigned { .. }) => {
            "sign every new version with a key in the server's list of allowed signers: `mdl commit --sign`".to_owned()
        }
        RepoError::Protected { refusal, .. } if matches!(**refusal, Refusal::Rewind { .. }) => {
            "get what is there (`mdl pull`) and build on it, or push to another branch".to_owned()
        }
        RepoError::NotForward { .. } => {
            "get what is there first: `mdl pull`, or where both sides have new versions `mdl pull --rebase` (yours on \
             top of theirs) or `mdl pull --merge average` (one version of both); then `mdl push` again. To leave what \
             is there behind: `mdl push --force-with-lease`"
                .to_owned()
        }
        RepoError::InProgress { operation } => {
            format!("`mdl {operation} --continue` goes on, `mdl {operation} --abort` takes it back")
        }
        RepoError::RecordUnreadable { .. } => {
            "branch and HEAD are where they were: `mdl rebase --quit` forgets the operation, then `mdl reset --hard` \
             brings the files back"
                .to_owned()
        }
        RepoError::Parted { .. } => {
            "`mdl pull --rebase` puts this side's versions on top of the others (`mdl rebase REV` does so without a \
             remote); `mdl pull --merge average`, or another strategy of `mdl merge`, makes one version of both"
                .to_owned()
        }
        RepoError::NotExact { .. } => {
            "without --exact the change is made as arithmetic on the weights, on top of what the others changed"
                .to_owned()
        }
        RepoError::FilesOfAnother { base: Some(base), tip: None, .. } => {
            format!("`mdl switch -c NAME {}` goes on from what the files are of", base.short())
        }
        RepoError::FilesOfAnother { name, .. } => format!(
            "`mdl checkout {name}` takes what is there (--force: over changes too); `mdl reset {name}` keeps the files \
             as they are, for the next commit to put on top"
        ),
        RepoError::FileKept { .. } => {
            "the status says which files are of which version; once this file is committed or moved away, the same \
             command goes on"
                .to_owned()
        }
        RepoError::Conflict { .. } => "look at what moved it (`mdl reflog`), then try again".to_owned(),
        RepoError::Corrupt { .. } => "run `mdl fsck` to see which commits, files and tensors are affected".to_owned(),
        RepoError::Scan { .. } if error.hint().is_some() => {
            "if the file is still being written, wait; to store it as plain bytes, pass --allow-damaged".to_owned()
        }
        full if full.is_full() => {
            "nothing was lost: free some space (`mdl gc` may help) and run the command again; with `mdl config \
             commit.on_full wait` commits wait for room"
                .to_owned()
        }
        other => return other.hint(),
    };
    Some(text)
}

fn remedy(remedy: &Remedy) -> Option<String> {
    Some(match remedy {
        Remedy::NameOrForce => "choose another name, or pass --force".to_owned(),
        Remedy::ForceDeletion => "pass -D to delete it all the same".to_owned(),
        Remedy::Reset => "use `mdl reset` to move it".to_owned(),
        Remedy::BranchOrCheckOut(label) => {
            format!(
                "continue from it with `mdl switch -c NAME {label}`, or take its files with \
                 `mdl checkout {label} --to DIR`"
            )
        }
        Remedy::NamePath => "give a path (commit PATH, checkout --to DIR)".to_owned(),
        Remedy::FollowLinks => {
            "links are not stored: pass --follow-symlinks to commit what they point at, or name it in .mdlignore"
                .to_owned()
        }
        Remedy::CheckOutElsewhere(first) => format!("{first}, or check out elsewhere with --to"),
        Remedy::AllowEmptyShard => "--allow-empty puts a shard without files, where a rank has none".to_owned(),
        Remedy::UndoPrune(commit) => format!("take it back first: `mdl prune --undo {}`", commit.short()),
        Remedy::PruneGrace => {
            "the contents of a pruned version are there until a `mdl gc` after `gc.grace_hours`, or `mdl gc \
             --prune-now`"
                .to_owned()
        }
        Remedy::TwoRevisions => "`mdl log B` lists what leads to B, `mdl diff A B` compares two".to_owned(),
        Remedy::ShowShape => "`mdl ls REV PATH` shows the shape".to_owned(),
        Remedy::OneFile => "name one file; `mdl status` compares the work tree with its version".to_owned(),
        _ => return None,
    })
}
