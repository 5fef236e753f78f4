//! Lossy commits on a device: the same candidates, records and versions as on the host.

#[path = "../../../repo/tests/it/lossy/model.rs"]
mod model;

use crate::support::{Noise, Place, place, shaped};
use mdl_codec::Device;
use mdl_codec_cuda::{CudaEngine, shim};
use mdl_repo::{Committed, Direction, LossyRequest, Repo, Silent};
use model::{Distance, FILE, Model, NO_BOUNDS, quality, request};
use std::sync::Arc;
use tempfile::TempDir;

/// A place whose engine works on a device.
fn place_on(device: &Arc<CudaEngine>) -> Place {
    let dir = TempDir::new().expect("temp dir");
    let (repo, _) = Repo::init(dir.path(), false, "main", device.clone()).expect("init");
    Place { dir, repo }
}

/// The model with gradients' squares of an optimizer, which both kinds of moments stand for.
fn with_moments(model: &Model, step: u64) -> Vec<u8> {
    let mut noise = Noise(900 + step);
    let state: Vec<(String, Vec<u64>, Vec<f32>)> = model.tensors[..2]
        .iter()
        .flat_map(|(name, shape, values)| {
            let m: Vec<f32> = noise.weights(values.len()).iter().map(|x| x * 1e-2).collect();
            let v: Vec<f32> = m.iter().map(|x| x * x + 1e-8).collect();
            [("exp_avg", m), ("exp_avg_sq", v)].map(|(kind, x)| (format!("{name}.{kind}"), shape.clone(), x))
        })
        .collect();
    let weights = model.tensors.iter().map(|(n, s, v)| (*n, s.as_slice(), v.as_slice()));
    let moments = state.iter().map(|(n, s, v)| (n.as_str(), s.as_slice(), v.as_slice()));
    shaped(&weights.chain(moments).collect::<Vec<_>>())
}

#[test]
fn what_a_device_quantises_is_what_the_host_does() {
    let device = Arc::new(shim(1 << 30));
    let policies = [
        ("steps", "try = [\"lattice\"]\n[optimizer]\nmoments = \"factored\"\n"),
        ("bins", "try = [\"bins\"]\n[bins]\nbins = [8, 16, 32, 64]\n"),
        (
            "pruned",
            "try = [\"bins\"]\n[bins]\nsearch = \"cube\"\nbins = [16, 32]\nprune = [0.2, 0.0]\nprotect = [0.005]\n\
             metrics = [\"sensitivity\", \"magnitude\"]\ncodebooks = [\"fresh\"]\n",
        ),
    ];
    for (name, text) in policies {
        // Bins would have to be finer than these to be within the default bounds.
        let open = if name == "steps" { "" } else { NO_BOUNDS };
        let text = &format!("{text}{open}");
        let places = [place(), place_on(&device)];
        let mut model = Model::new();
        for step in 0..2 {
            let (file, before) = (with_moments(&model, step), device.traffic());
            let [here, there] = [&places[0], &places[1]].map(|p| {
                p.write(FILE, &file);
                p.write(".mdlignore", b"g.safetensors\n");
                p.write("g.safetensors", &Model { noise: Noise(step), ..Model::new() }.bytes());
                mdl_repo::set_policy(&p.repo, name, text).expect("a policy");
                let mut judge =
                    Distance { exact: file.clone(), loss: 2.0 - 0.01 * step as f64, weight: 1.0, seen: Vec::new() };
                let mut lossy = LossyRequest {
                    policy: mdl_repo::policy(&p.repo, name).expect("a policy"),
                    evaluator: Some(&mut judge),
                    direction: Direction::LowerIsBetter,
                    grads: Some(p.path().join("g.safetensors")),
                    since: None,
                };
                let done = mdl_repo::commit_lossy(&p.repo, &request(step), &mut lossy, &Silent).expect("commit");
                let seen: Vec<Vec<u8>> = judge.seen.into_iter().map(|(_, file)| file).collect();
                (done, seen)
            });
            let (host, over_there) = (&here.0, &there.0);
            assert_ne!(quality(host).family, "lossless", "{name}, step {step}");
            assert_eq!(quality(host), quality(over_there), "{name}, step {step}");
            assert!(here.1 == there.1, "{name}, step {step}: other candidates");
            let tree = |p: &Place, c: &Committed| p.repo.odb().commit(&c.id).expect("commit").tree;
            assert_eq!(tree(&places[0], host), tree(&places[1], over_there), "{name}, step {step}");
            assert_eq!(host.summary.stored_bytes, over_there.summary.stored_bytes, "{name}, step {step}");
            let (up, _) = device.traffic();
            assert!(up > before.0, "the device had nothing to do");
            if name == "steps" {
                let stored = places[1].judged_at("main", FILE);
                assert_ne!(stored[stored.len() - 400..], file[file.len() - 400..], "moments, too");
            }
            model.train();
        }
        let report = mdl_repo::fsck(&places[1].repo, false, &Silent).expect("fsck");
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    }
    assert_eq!(device.failures(), 0, "the processor did the device's work");
}
