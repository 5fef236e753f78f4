//! Paths that the sandbox allows: repositories, the server's own directory, and what libraries open for DNS, TLS
//! certificates and facts about the machine.

use crate::{
    options::{Options, unserved},
    problem::Result,
    process::{sandbox::Needs, state::entries},
};
use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

/// Libraries that are loaded when they are needed: to resolve names, to compute on a GPU.
const LIBRARIES: [&str; 6] = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache"];
/// Files for name resolution.
const NAMES: [&str; 5] = ["/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf"];
/// CA certificates for webhooks and buckets: the world-readable ones, not the directories of private keys beside them.
const AUTHORITIES: [&str; 7] = [
    "/etc/ssl/certs",
    "/etc/ssl/cert.pem",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/ca-trust/extracted",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
];
/// How many processors there are for this process; the local time.
const MACHINE: [&str; 6] = [
    "/proc/self/cgroup",
    "/proc/self/mountinfo",
    "/sys/fs/cgroup",
    "/sys/devices/system/cpu",
    "/etc/localtime",
    "/usr/share/zoneinfo",
];
const DEVICES: [&str; 3] = ["/dev/null", "/dev/urandom", "/dev/random"];

/// Where a bucket's credentials may be: variables that name files, and places below the home directory.
const CREDENTIAL_FILES: [&str; 5] = [
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_CONFIG_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
];
const CREDENTIALS: [&str; 3] = [".aws", ".azure", ".config/gcloud"];
/// Tokens that are replaced from time to time: their directories.
const TOKEN_FILES: [&str; 3] =
    ["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AZURE_FEDERATED_TOKEN_FILE"];

pub(super) fn from_options(options: &Options, state: &Path) -> Result<Needs> {
    let mut needs = Needs {
        read: fixed(),
        write: vec![state.to_path_buf()],
        append: options.audit_log.iter().filter_map(|log| directory_of(log)).collect(),
        devices: DEVICES.map(PathBuf::from).to_vec(),
    };
    needs.devices.extend(options.device_paths.iter().cloned());
    match &options.storage {
        Some(_) => needs.read.extend(credentials()),
        None => {
            let root = options.root.canonicalize().map_err(unserved(&options.root))?;
            let served = match options.read_only {
                true => &mut needs.read,
                false => &mut needs.write,
            };
            served.extend(links_out_of(&root));
            served.push(root);
        }
    }
    needs.read.extend(mdl_repo::user_file());
    let tls = options.tls.iter().flat_map(|tls| [tls.certificate.clone(), tls.key.clone()]);
    needs.read.extend(tls);
    Ok(needs)
}

/// The directory that a file is, or is to be, in.
fn directory_of(file: &Path) -> Option<PathBuf> {
    let parent = file.parent().filter(|p| !p.as_os_str().is_empty());
    fs::canonicalize(parent.unwrap_or(Path::new("."))).ok()
}

fn fixed() -> Vec<PathBuf> {
    let lists = [&LIBRARIES[..], &NAMES, &AUTHORITIES, &MACHINE];
    let mut out: Vec<PathBuf> = lists.concat().into_iter().map(PathBuf::from).collect();
    // Where it is a link, what it leads to is replaced with each change of network.
    let replaced = fs::canonicalize("/etc/resolv.conf").ok();
    let replaced = replaced.and_then(|p| Some(p.parent()?.to_path_buf()));
    out.extend(replaced.filter(|dir| !dir.ends_with("etc")));
    out.extend(["SSL_CERT_FILE", "SSL_CERT_DIR"].into_iter().filter_map(named));
    out.extend(env::var_os("LD_LIBRARY_PATH").iter().flat_map(env::split_paths));
    out.retain(|path| path.is_absolute());
    out
}

fn named(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).filter(|v: &OsString| !v.is_empty()).map(PathBuf::from)
}

fn credentials() -> Vec<PathBuf> {
    let home = named("HOME");
    let at_home = home.iter().flat_map(|home| CREDENTIALS.iter().map(|below| home.join(below)));
    let files = CREDENTIAL_FILES.into_iter().filter_map(named);
    let tokens = TOKEN_FILES.into_iter().filter_map(|v| Some(named(v)?.parent()?.to_path_buf()));
    at_home.chain(files).chain(tokens).collect()
}

/// Directories elsewhere that links in the root lead to: owners, repositories, and what is directly inside of these
/// (packs on another disk, say).
fn links_out_of(root: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for owner in entries(root) {
        out.extend(elsewhere(root, &owner));
        for repo in entries(&owner) {
            out.extend(elsewhere(root, &repo));
            for inside in entries(&repo).into_iter().chain(entries(&repo.join(mdl_repo::DIR))) {
                out.extend(elsewhere(root, &inside));
            }
        }
    }
    // A root that is a repository itself, with a link to where its packs are.
    out.extend(entries(&root.join(mdl_repo::DIR)).iter().filter_map(|p| elsewhere(root, p)));
    out
}

/// Where a link to a directory leads, if not into the root.
fn elsewhere(root: &Path, path: &Path) -> Option<PathBuf> {
    if !path.symlink_metadata().ok()?.is_symlink() {
        return None;
    }
    let target = path.canonicalize().ok()?;
    (target.is_dir() && !target.starts_with(root)).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_to_repositories_elsewhere_are_found_and_other_links_are_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let top = dir.path().canonicalize().expect("a path");
        for made in
            ["root/ada/plain/packs", "root/ada/split", "elsewhere/repo", "elsewhere/packs", "elsewhere/owner", "deep"]
        {
            fs::create_dir_all(top.join(made)).expect("a directory");
        }
        fs::write(top.join("elsewhere/secret"), b"x").expect("a file");
        for (link, target) in [
            ("root/bob", "elsewhere/owner"),
            ("root/ada/linked", "elsewhere/repo"),
            ("root/ada/split/packs", "elsewhere/packs"),
            ("root/ada/inner", "root/ada/plain"),
            ("root/ada/plain/HEAD", "elsewhere/secret"),
            ("root/ada/plain/packs/deep", "deep"),
            ("root/ada/gone", "nowhere"),
        ] {
            symlink(top.join(target), top.join("root").parent().expect("top").join(link)).expect("a link");
        }
        let mut found = links_out_of(&top.join("root"));
        found.sort();
        let wanted = ["elsewhere/owner", "elsewhere/packs", "elsewhere/repo"].map(|p| top.join(p));
        assert_eq!(found, wanted, "only directories, and only where a repository has them");
    }

    #[test]
    fn nothing_private_is_needed() {
        let list = fixed();
        for private in ["/etc/shadow", "/etc/ssl/private/x", "/proc/self/environ", "/root", "/home", "/tmp/x", "/etc"] {
            let private = Path::new(private);
            assert!(!list.iter().any(|p| private.starts_with(p)), "{private:?}");
        }
    }
}
