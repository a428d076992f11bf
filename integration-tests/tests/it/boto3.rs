//! boto3: what applications rely on, script by script (integration-tests/clients).

use ozone_integration_tests::{Cluster, python, run};

#[test]
fn objects_listings_uploads_and_refusals() {
    let cluster = Cluster::single();
    run(&mut python(&cluster, "s3_basics.py"));
}

#[test]
fn semantics_of_s3_to_the_letter() {
    let cluster = Cluster::single();
    run(&mut python(&cluster, "s3_behaviours.py"));
}
