//! Everything at once, for twenty seconds; `make soak` takes longer.

use std::process::Command;

#[test]
fn twenty_seconds_of_work_and_faults_lose_nothing() {
    let output = Command::new(env!("CARGO_BIN_EXE_soak"))
        .env("SECONDS", "20")
        .output()
        .expect("the soak");
    let said = String::from_utf8_lossy(&output.stdout);
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{why}");
    assert!(said.contains("soak: passed"), "{said}");
}
