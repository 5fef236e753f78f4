//! Slices of tensors: what numpy would choose, in pieces of bounded length.

use crate::support::{Noise, Place, le, place, shaped};
use mdl_objects::{Manifest, TensorRef, ViewRef};
use mdl_repo::{Axis, Elements, ErrorKind, Result, Slice, shape_of};

const SHAPE: [u64; 3] = [5, 70, 6000];

fn given() -> (Place, Vec<f32>, Manifest) {
    let p = place();
    let values = Noise(3).weights(SHAPE.iter().product::<u64>() as usize);
    p.write("m.safetensors", &shaped(&[("w", &SHAPE, &values), ("none", &[0, 3], &[]), ("one", &[], &[2.5])]));
    let id = p.commit("a").id;
    let entry = mdl_repo::files(&p.repo, &id).expect("files")["m.safetensors"].clone();
    let manifest = p.repo.odb().manifest(&entry.id).expect("manifest");
    (p, values, manifest)
}

fn streamed(p: &Place, elements: &Elements, axes: &[Axis]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    elements.stream(p.repo.odb(), axes, &mut |bytes| {
        assert!(bytes.len() <= 8 << 20, "a piece of {} bytes", bytes.len());
        out.extend_from_slice(bytes);
        Ok(())
    })?;
    Ok(out)
}

/// The chosen elements, one by one.
fn chosen(values: &[f32], axes: &[Axis]) -> Vec<u8> {
    let mut out = Vec::new();
    let at = |a: &Axis, i: u64| (a.start + i * a.step) as usize;
    for i in 0..axes[0].count {
        for j in 0..axes[1].count {
            for k in 0..axes[2].count {
                let place = (at(&axes[0], i) * 70 + at(&axes[1], j)) * 6000 + at(&axes[2], k);
                out.push(values[place]);
            }
        }
    }
    le(&out)
}

#[test]
fn slices_give_what_they_choose() {
    let (p, values, manifest) = given();
    let w = Elements::find(&manifest, "w", "m").expect("w");
    for text in [
        "...",
        "1:4",
        "0",
        ":,0:3",
        "::2,::3,::5",
        "-1,-1,-1",
        "2,10:60",
        "4:2",
        ":,:,::9223372036854775807",
        "1:3,5,7:9",
        "0:0,0:0",
    ] {
        let axes = text.parse::<Slice>().expect(text).apply(&w.shape).expect(text);
        let got = streamed(&p, &w, &axes).expect(text);
        assert!(got == chosen(&values, &axes), "{text}");
        assert_eq!(w.byte_len(&axes).expect(text), got.len() as u64, "{text}");
        let shape = shape_of(&axes);
        assert_eq!(shape.iter().product::<u64>() * 4, got.len() as u64, "{text}");
    }
    let none = Elements::find(&manifest, "none", "m").expect("none");
    assert_eq!(none.byte_len(&none.all()).expect("length"), 0);
    assert_eq!(streamed(&p, &none, &none.all()).expect("nothing"), b"");
    let one = Elements::find(&manifest, "one", "m").expect("one");
    assert_eq!(streamed(&p, &one, &one.all()).expect("one"), 2.5f32.to_le_bytes());
    let lost = Elements::find(&manifest, "v", "m").expect_err("no such name");
    assert_eq!(lost.to_string(), "tensor not found: v in m");
}

#[test]
fn axes_of_another_tensor_are_refused() {
    let (p, _, manifest) = given();
    let w = Elements::find(&manifest, "w", "m").expect("w");
    let axis = |start, count, step| Axis { start, count, step, single: false };
    let good = w.all();
    for bad in [
        vec![],
        vec![good[0], good[1]],
        vec![good[0], good[1], axis(0, 6001, 1)],
        vec![axis(5, 1, 1), good[1], good[2]],
        vec![axis(1, u64::MAX, u64::MAX), good[1], good[2]],
        vec![axis(u64::MAX, 2, 1), good[1], good[2]],
    ] {
        assert_eq!(w.byte_len(&bad).expect_err("refused").kind(), ErrorKind::Usage);
        assert_eq!(streamed(&p, &w, &bad).expect_err("refused").kind(), ErrorKind::Usage);
    }
}

fn view(shape: &[u64], strides: &[u64], offset: u64) -> ViewRef {
    ViewRef {
        name: "v".to_owned(),
        tensor: 0,
        offset,
        dtype: mdl_codec::Dtype::F32,
        shape: shape.to_vec(),
        strides: strides.to_vec(),
    }
}

#[test]
fn views_show_what_lies_in_their_tensor_and_nothing_else() {
    let (p, values, manifest) = given();
    let t: &TensorRef = manifest.tensors.iter().find(|t| t.name == "w").expect("w");
    // The first matrix, transposed.
    let v = Elements::view(t, &view(&[6000, 70], &[1, 6000], 0)).expect("inside");
    let right: Vec<f32> = (0..6000 * 70).map(|i| values[i % 70 * 6000 + i / 70]).collect();
    assert!(streamed(&p, &v, &v.all()).expect("stream") == le(&right));
    // One element shown without end: its length is said before anything is made of it.
    let v = Elements::view(t, &view(&[1 << 40, 1 << 40], &[0, 0], 4)).expect("inside");
    assert_eq!(v.byte_len(&v.all()).expect_err("too many").kind(), ErrorKind::User);
    let part: Slice = "7:9,3".parse().expect("slice");
    let axes = part.apply(&v.shape).expect("inside");
    assert_eq!(streamed(&p, &v, &axes).expect("stream"), le(&[values[1], values[1]]));
    for bad in [
        view(&[5, 70, 6001], &[420_000, 6000, 1], 0),
        view(&[5, 70, 6000], &[420_000, 6000, 1], 4),
        view(&[2], &[u64::MAX], 0),
        view(&[u64::MAX, u64::MAX], &[u64::MAX, 1], 0),
        view(&[1], &[1], u64::MAX),
    ] {
        let e = Elements::view(t, &bad).expect_err("outside");
        assert_eq!(e.kind(), ErrorKind::Corrupt, "{bad:?}");
    }
    // A manifest that lies about its tensor is found out.
    let longer = TensorRef { shape: vec![1 << 30], ..t.clone() };
    let e = Elements::whole(&longer);
    assert_eq!(streamed(&p, &e, &e.all()).expect_err("shorter").kind(), ErrorKind::Corrupt);
}
