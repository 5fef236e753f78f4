//! Parameters out of their range, and the names and defaults that recipes rely on.

use mdl_merge::{MergeError, Method, Strategy};

fn new(method: Method) -> Strategy {
    Strategy::new(method)
}

#[test]
fn a_resolved_strategy_leaves_nothing_to_defaults_and_reads_back() {
    let text = |method| serde_json::to_string(&new(method).resolved(2).expect("defaults")).expect("JSON");
    assert_eq!(text(Method::Average), r#"{"method":"average"}"#);
    assert_eq!(text(Method::Weighted), r#"{"method":"weighted","weight":[1.0,1.0],"normalize":true}"#);
    assert_eq!(text(Method::Slerp), r#"{"method":"slerp","t":0.5}"#);
    let ties = r#"{"method":"ties","weight":[1.0,1.0],"density":1.0,"normalize":true,"lambda":1.0}"#;
    assert_eq!(text(Method::Ties), ties);
    for method in Method::ALL {
        let resolved = new(method).resolved(2).expect("defaults");
        assert_eq!(resolved.resolved(2).as_ref(), Ok(&resolved));
        assert_eq!(serde_json::from_str::<Strategy>(&text(method)).expect("read"), resolved);
    }
    assert!(serde_json::from_str::<Strategy>(r#"{"method":"average","later":1}"#).is_err());
}

#[test]
fn names_are_ours_and_those_of_mergekit() {
    for method in Method::ALL {
        assert_eq!(Method::from_name(method.name()), Some(method));
    }
    assert_eq!(Method::from_name("linear"), Some(Method::Weighted));
    assert_eq!(Method::from_name("dare_ties"), Some(Method::DareTies));
    assert_eq!(Method::from_name("dare"), Some(Method::DareLinear));
    assert_eq!(Method::from_name("task_arithmetic"), Some(Method::TaskArithmetic));
    assert_eq!(Method::from_name("best"), None);
}

#[test]
fn parameters_out_of_range_are_refused() {
    let refused = |strategy: Strategy| strategy.resolved(2).expect_err("refused");
    let is_parameter = |error: MergeError, name: &str| match error {
        MergeError::Parameter { parameter, .. } | MergeError::Unused { parameter, .. } => assert_eq!(parameter, name),
        other => unreachable!("{other}"),
    };
    for density in [-0.1, 1.1, f64::NAN] {
        is_parameter(refused(Strategy { density: Some(density), ..new(Method::Ties) }), "density");
    }
    is_parameter(refused(Strategy { density: Some(0.0), ..new(Method::DareLinear) }), "density");
    is_parameter(refused(Strategy { density: Some(0.5), ..new(Method::Average) }), "density");
    is_parameter(refused(Strategy { t: Some(1.5), ..new(Method::Slerp) }), "t");
    is_parameter(refused(Strategy { seed: Some(1), ..new(Method::Ties) }), "seed");
    is_parameter(refused(Strategy { weight: vec![1.0, 2.0], ..new(Method::Average) }), "weight");
    is_parameter(refused(Strategy { weight: vec![1.0, f64::INFINITY], ..new(Method::Ties) }), "weight");
    is_parameter(refused(Strategy { lambda: Some(f64::NAN), ..new(Method::Ties) }), "lambda");
    let three = Strategy { weight: vec![1.0; 3], ..new(Method::Ties) };
    assert_eq!(refused(three), MergeError::Weights { weights: 3, versions: 2 });
    let zero = Strategy { weight: vec![1.0, -1.0], ..new(Method::Weighted) };
    assert_eq!(refused(zero), MergeError::ZeroWeights);
}
