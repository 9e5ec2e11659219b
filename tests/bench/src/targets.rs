//! What a call may cost, and whether it does.

use serde_json::{Value, json};

enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Bound {
    fn is_kept_by(&self, value: f64) -> bool {
        match *self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }
}

/// Compares `figures` with what they should be; prints it, and returns it for the file.
pub(crate) fn targets(figures: &Value) -> Value {
    use Bound::{AtLeast, AtMost};
    let number = |pointer: &str| {
        figures
            .pointer(pointer)
            .and_then(Value::as_f64)
            .unwrap_or_else(|| panic!("no figure {pointer}"))
    };
    let row = |list: &str, key: &str, wanted: u64, figure: &str| {
        let rows = figures.pointer(list).and_then(Value::as_array);
        rows.into_iter()
            .flatten()
            .find(|row| row[key] == wanted)
            .and_then(|row| row.pointer(figure)?.as_f64())
            .unwrap_or_else(|| panic!("no row {wanted} in {list}"))
    };
    let largest = |way: &str| row("/sizes/rows", "chars", 262_144, &format!("/{way}/p50_us"));
    let relays = |count| row("/relays", "relays", count, "/p50_us");
    let in_flight = |count| row("/in_flight", "in_flight", count, "/calls_per_second");
    let all = [
        (
            "e / (b + d)",
            number("/round_trip/ratios/e~1(b+d)"),
            AtMost(1.25),
        ),
        ("d / c", number("/round_trip/ratios/d~1c"), AtMost(6.0)),
        ("f / e", number("/round_trip/ratios/f~1e"), AtLeast(20.0)),
        ("g / e", number("/round_trip/ratios/g~1e"), AtLeast(10.0)),
        (
            "262,144 characters, g / e",
            largest("plain") / largest("module"),
            AtLeast(30.0),
        ),
        ("32 relays / 1", relays(32) / relays(1), AtMost(1.3)),
        (
            "calls a second, 64 in flight / 1",
            in_flight(64) / in_flight(1),
            AtLeast(2.0),
        ),
        (
            "memory of the relay, KiB",
            number("/memory/relay_kib"),
            AtMost(8.0 * 1024.0),
        ),
        (
            "growth of Emacs, KiB",
            number("/memory/emacs_growth_kib"),
            AtMost(4.0 * 1024.0),
        ),
        (
            "off a line: size of the value",
            number("/sizes/module_fit/worst_deviation_of_largest"),
            AtMost(0.25),
        ),
        (
            "off a line: calls waiting",
            number("/waiting/fit/worst_deviation_of_largest"),
            AtMost(0.25),
        ),
    ];
    println!("\ntarget                                 figure      bound");
    let rows: Vec<_> = all
        .into_iter()
        .map(|(name, value, bound)| {
            let met = bound.is_kept_by(value);
            let (word, bound) = match bound {
                AtMost(most) => ("at most", most),
                AtLeast(least) => ("at least", least),
            };
            println!(
                "{name:36} {value:8.2}   {word} {bound}{}",
                if met { "" } else { ": MISSED" }
            );
            json!({ "name": name, "figure": value, word: bound, "met": met })
        })
        .collect();
    json!(rows)
}
