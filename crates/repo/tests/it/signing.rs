//! Signatures: what each is worth, what they cover, and that no byte of what they cover changes unseen.

use crate::support::{add_object, duplicate, engine, memory, open};
use mdl_objects::{Commit, Id, Kind};
use mdl_repo::{
    AllowedSigners, CommitRequest, Repo, SignatureStatus, Signer, Signers, Signing, Silent, WriteTransaction,
    check_version, commit,
    pack::NewObject,
    storage::{MemoryStorage, Prefix, Storage},
    verify_commit, verify_tag,
};
use ssh_key::{LineEnding, PrivateKey, private::Ed25519Keypair};
use std::{
    fs,
    path::PathBuf,
    sync::{Arc, LazyLock},
};
use tempfile::TempDir;

/// The two halves of a key that opens nothing.
static KEYS: LazyLock<(String, String)> = LazyLock::new(|| {
    let key = PrivateKey::from(Ed25519Keypair::from_seed(&[7; 32]));
    let private = key.to_openssh(LineEnding::LF).expect("a key").to_string();
    (private, key.public_key().to_openssh().expect("a key") + "\n")
});

fn public() -> &'static str {
    &KEYS.1
}

struct Signed {
    dir: TempDir,
    storage: MemoryStorage,
    repo: Repo,
    signer: Arc<Signer>,
}

impl Signed {
    fn new() -> Signed {
        let dir = TempDir::new().expect("a directory");
        let storage = MemoryStorage::new();
        let repo = Repo::init_storage(Arc::new(storage.clone()), "main", engine()).expect("init");
        let path = dir.path().join("key");
        fs::write(&path, &KEYS.0).expect("written");
        let signer = Arc::new(Signer::load(path.to_str().expect("text")).expect("a key"));
        Signed { dir, storage, repo, signer }
    }

    fn commit(&self, text: &str) -> Id {
        let request = CommitRequest {
            files: Some(vec![memory("a.txt", text), memory("sub/b.txt", "the same")]),
            message: text.to_owned(),
            signing: Signing::With(self.signer.clone()),
            ..CommitRequest::default()
        };
        commit(&self.repo, &request, &Silent).expect("commit").id
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).expect("written");
        path
    }

    fn signers(&self, allowed: &str, revoked: Option<&str>) -> Signers {
        let (allowed, revoked) = (self.file("allowed", allowed), revoked.map(|text| self.file("revoked", text)));
        Signers::read(Some(&allowed), revoked.as_deref()).expect("lists")
    }

    fn status(&self, id: &Id, signers: &Signers) -> SignatureStatus {
        verify_commit(&self.repo, id, signers).expect("a commit").1.status
    }
}

#[test]
fn a_signature_is_worth_what_the_lists_say() {
    let s = Signed::new();
    let id = s.commit("one");
    let line = |options: &str| format!("ada@example.com {options} {}", public());
    let cases = [
        (line(""), None, SignatureStatus::Good),
        (String::new(), None, SignatureStatus::Unknown),
        (line("namespaces=\"git,file\""), None, SignatureStatus::Unknown),
        (line("namespaces=\"mdl\""), None, SignatureStatus::Good),
        (line("valid-before=\"20200101\""), None, SignatureStatus::Expired),
        (line("valid-after=\"99980101\""), None, SignatureStatus::Expired),
        (line("valid-before=\"20200101\"") + &line(""), None, SignatureStatus::Good),
        (line(""), Some(public()), SignatureStatus::Revoked),
        (line("valid-before=\"20200101\""), Some(public()), SignatureStatus::Revoked),
    ];
    for (allowed, revoked, status) in cases {
        assert_eq!(s.status(&id, &s.signers(&allowed, revoked)), status, "{allowed} {revoked:?}");
    }
    assert_eq!(s.status(&id, &Signers::default()), SignatureStatus::Unknown);
    let only = |name: &str| s.signers(&line(""), None).only(&[name.to_owned()]);
    assert_eq!(s.status(&id, &only("ada@example.com")), SignatureStatus::Good);
    assert_eq!(s.status(&id, &only("bob@example.com")), SignatureStatus::Unknown);
}

#[test]
fn lists_that_are_not_understood_are_refused() {
    let s = Signed::new();
    for text in [format!("ada cert-authority {}", public()), "nonsense".to_owned()] {
        assert!(AllowedSigners::read(&s.file("allowed", &text)).is_err(), "{text}");
    }
    let krl = s.file("revoked", "SSHKRL\n\0");
    let error = Signers::read(None, Some(&krl)).expect_err("a binary list").to_string();
    assert!(error.contains("KRL"), "{error}");
    assert!(Signers::read(None, Some(&s.dir.path().join("none"))).is_err(), "a list that is not there");
}

#[test]
fn no_signature_and_one_of_other_bytes_are_told_apart() {
    let s = Signed::new();
    let id = s.commit("one");
    let (signed, _) = verify_commit(&s.repo, &id, &Signers::default()).expect("a commit");
    let store = |commit: &Commit| {
        let transaction = WriteTransaction::begin(&s.repo).expect("lock");
        transaction.add(Kind::Commit, &commit.encode(), [commit.tree]).expect("stored")
    };
    let signers = s.signers(&format!("ada {}", public()), None);
    let bare = Commit { signature: None, ..signed.clone() };
    assert_eq!(s.status(&store(&bare), &signers), SignatureStatus::Unsigned);
    let other = Commit { message: "two".to_owned(), ..signed.clone() };
    assert_eq!(s.status(&store(&other), &signers), SignatureStatus::Bad);
    for nonsense in
        ["", "-----BEGIN SSH SIGNATURE-----\n", "-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----\n"]
    {
        let torn = Commit { signature: Some(nonsense.to_owned()), ..signed.clone() };
        assert_eq!(s.status(&store(&torn), &signers), SignatureStatus::Bad, "{nonsense:?}");
    }
    // A field of a newer version is covered, too.
    let newer = Commit { unknown: vec![(40, vec![1])], ..signed };
    assert_eq!(s.status(&store(&newer), &signers), SignatureStatus::Bad);
}

#[test]
fn a_tag_under_another_name_is_bad() {
    let s = Signed::new();
    let id = s.commit("one");
    let signing = Signing::With(s.signer.clone());
    let tag = mdl_repo::create_signed_tag(&s.repo, "v1", &id, Some("first"), false, &signing).expect("a tag");
    mdl_repo::create_tag(&s.repo, "light", &id, None, false).expect("a tag");
    let signers = s.signers(&format!("ada {}", public()), None);
    let status = |name: &str| verify_tag(&s.repo, name, &signers).map(|(_, _, v)| v.status);
    assert_eq!(status("v1").expect("a tag"), SignatureStatus::Good);
    assert!(status("light").is_err() && status("none").is_err());
    mdl_repo::move_ref(&s.repo, "refs/tags/v2", None, Some(tag), None, "moved").expect("a ref");
    assert_eq!(status("v2").expect("a tag"), SignatureStatus::Bad);
    let wanted = mdl_repo::create_signed_tag(&s.repo, "v3", &id, None, false, &signing);
    assert_eq!(wanted.expect_err("no message").kind(), mdl_repo::ErrorKind::Usage);
}

/// Whether a check of the version finds fault, whatever it says.
fn is_found(storage: &MemoryStorage, id: &Id, signers: &Signers) -> bool {
    let Ok(repo) = Repo::with_storage(Arc::new(storage.clone()), engine(), None, None, None) else { return true };
    let good = verify_commit(&repo, id, signers).is_ok_and(|(_, verdict)| verdict.is_good());
    !good || check_version(&repo, id, &Silent).map_or(true, |report| !report.problems.is_empty())
}

#[test]
fn a_changed_byte_of_what_a_signature_covers_is_found() {
    let s = Signed::new();
    let first = s.commit("one");
    let id = s.commit("two");
    let signers = s.signers(&format!("ada {}", public()), None);
    assert!(!is_found(&s.storage, &id, &signers));
    let report = check_version(&s.repo, &id, &Silent).expect("a check");
    assert_eq!((report.versions, report.left_out), (2, 0));
    assert!(check_version(&s.repo, &first, &Silent).expect("a check").versions == 1);
    let mut changed = 0;
    for listed in s.storage.list(&Prefix::parse("packs/").expect("prefix")).expect("list") {
        let whole = s.storage.get(&listed.key).expect("get").expect("a pack");
        for at in 0..whole.len() {
            let copy = duplicate(&s.storage);
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            copy.put(&listed.key, &bytes).expect("put");
            // The first bytes of a pack say only what it is: nothing that is covered.
            assert!(at < 8 || is_found(&copy, &id, &signers), "byte {at} of {}", listed.key);
            changed += 1;
        }
    }
    assert!(changed > 500, "{changed}");
}

/// Somebody who can write the store makes all checksums right: only the ids tell.
#[test]
fn other_contents_under_the_same_id_are_found() {
    let s = Signed::new();
    let id = s.commit("one");
    let signers = s.signers(&format!("ada {}", public()), None);
    let blob = Id::from_content(Kind::Blob, b"one");
    let packs = s.storage.list(&Prefix::parse("packs/").expect("prefix")).expect("list");
    let old = packs.first().expect("a pack").key.clone();
    let forged = MemoryStorage::new();
    let repo = Repo::init_storage(Arc::new(forged.clone()), "main", engine()).expect("init");
    let transaction = WriteTransaction::begin(&repo).expect("lock");
    let mut pack = transaction.pack([]).expect("pack");
    let odb = s.repo.odb();
    let commit = odb.commit(&id).expect("commit");
    add_object(&mut pack, Kind::Commit, &commit.encode());
    add_object(&mut pack, Kind::Blob, &odb.read(&commit.report.expect("report"), Kind::Blob).expect("blob"));
    let root = odb.tree(&commit.tree).expect("tree");
    add_object(&mut pack, Kind::Tree, &root.encode());
    let sub = root.entries.iter().find(|e| e.name == "sub").expect("sub").id;
    add_object(&mut pack, Kind::Tree, &odb.tree(&sub).expect("tree").encode());
    add_object(&mut pack, Kind::Blob, b"the same");
    let new = NewObject { id: blob, kind: Kind::Blob, depth: 0, base: None, grandparent: None, logical: 3 };
    pack.add(new, &[&[0], &b"eno"[..]].concat()).expect("forged");
    transaction.publish(pack).expect("published");
    let copy = duplicate(&s.storage);
    copy.delete(&old).expect("deleted");
    for listed in forged.list(&Prefix::parse("packs/").expect("prefix")).expect("list") {
        copy.put(&listed.key, &forged.get(&listed.key).expect("get").expect("a pack")).expect("put");
    }
    let repo = open(copy.clone());
    assert!(verify_commit(&repo, &id, &signers).expect("a commit").1.is_good());
    let report = check_version(&repo, &id, &Silent).expect("a check");
    assert!(report.problems.iter().any(|p| p.affected.iter().any(|a| a.path == "a.txt")), "{report:?}");
}

#[test]
fn nothing_is_stored_where_the_key_is_missing() {
    let s = Signed::new();
    assert!(Signer::load("/nowhere/key").is_err());
    assert!(Signer::load(s.file("odd", "ssh-rsa AAAA").to_str().expect("text")).is_err());
    assert!(Signing::with_key(&s.repo, None).is_err(), "no key is named");
}
