//! The picture: latency against the size of the value by three ways, and where the time of a small
//! call goes. Colours that can be told apart on white and on black.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use serde_json::Value;

const TEXT: RGBColor = RGBColor(125, 130, 138);
const GRID: RGBColor = RGBColor(150, 155, 163);
const COLOURS: [RGBColor; 6] = [
    RGBColor(46, 160, 97),
    RGBColor(214, 132, 36),
    RGBColor(206, 84, 92),
    RGBColor(72, 128, 214),
    RGBColor(148, 106, 208),
    RGBColor(128, 138, 52),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Height of the chart, and of each bar below it.
const CHART: u32 = 410;
const BAR: u32 = 104;

/// Draws the figures of each version of Emacs in `all` into `file`.
pub(crate) fn draw(all: &[Value], file: &Path) {
    let bars = u32::try_from(all.len()).expect("a few");
    let root = SVGBackend::new(file, (900, CHART + BAR * bars + 24)).into_drawing_area();
    let (above, mut below) = root.split_vertically(CHART);
    sizes(all, &above);
    for figures in all {
        let (bar, rest) = below.split_vertically(BAR);
        parts(figures, &bar);
        below = rest;
    }
    let machine = all.first().and_then(|figures| figures["machine"].as_str());
    let machine = Text::new(machine.unwrap_or_default().to_owned(), (70, 2), font(13));
    below.draw(&machine).expect("text");
    root.present().expect("a file");
}

fn font(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&TEXT)
}

/// A line for each way and version. The first version's points are filled.
fn sizes(all: &[Value], area: &Area<'_>) {
    let versions: Vec<_> = all
        .iter()
        .zip(["filled", "hollow"])
        .map(|(figures, points)| format!("{} ({points})", figures["emacs"]))
        .collect();
    let title = format!(
        "A value from Emacs to the client, p50; Emacs {}",
        versions.join(", ")
    );
    let mut chart = ChartBuilder::on(area)
        .caption(title, font(20))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(70)
        .build_cartesian_2d(
            (3_f64..400_000_f64).log_scale(),
            (0.1_f64..3_000_f64).log_scale(),
        )
        .expect("a chart");
    chart
        .configure_mesh()
        .x_desc("characters of the value")
        .y_desc("milliseconds")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y}"))
        .label_style(font(14))
        .axis_desc_style(font(15))
        .axis_style(TEXT)
        .bold_line_style(GRID.mix(0.35))
        .light_line_style(GRID.mix(0.08))
        .draw()
        .expect("a mesh");
    let ways = [
        ("module", "emacs_eval, module"),
        ("emacsclient", "emacs_eval, emacsclient"),
        ("plain", "plain emacsclient --eval"),
    ];
    for ((key, label), colour) in ways.iter().zip(COLOURS) {
        for (nth, figures) in all.iter().enumerate() {
            let points = points(figures, key);
            let (style, width) = if nth == 0 {
                (colour.filled(), 3)
            } else {
                (colour.stroke_width(2), 1)
            };
            let line = LineSeries::new(points.clone(), colour.stroke_width(width));
            chart.draw_series(line).expect("a line");
            if nth == 0 {
                let text = ("sans-serif", 15).into_font().color(&colour);
                // Above its line, where the lines are apart.
                let above = (points[0].0 * 1.15, points[0].1 * 2.4);
                let label = Text::new((*label).to_owned(), above, text);
                chart.draw_series([label]).expect("a label");
            }
            let circles = points.into_iter().map(|point| Circle::new(point, 4, style));
            chart.draw_series(circles).expect("points");
        }
    }
}

/// Characters and milliseconds, by the way `key`.
fn points(figures: &Value, key: &str) -> Vec<(f64, f64)> {
    let rows = figures["sizes"]["rows"].as_array().expect("rows");
    rows.iter()
        .map(|row| {
            (
                row["chars"].as_f64().expect("a number"),
                row[key]["p50_us"].as_f64().expect("a number") / 1e3,
            )
        })
        .collect()
}

/// Where the time of a small call goes.
fn parts(figures: &Value, area: &Area<'_>) {
    let times = figures["round_trip"]["times"].as_object().expect("times");
    let median = |letter: &str| {
        let found = times.iter().find(|(name, _)| name.starts_with(letter));
        found
            .and_then(|(_, times)| times["p50_us"].as_f64())
            .expect("a time")
    };
    let lisp = figures["round_trip"]["lisp_us"].as_f64().expect("a time");
    let (a, b, c, d, e) = (
        median("a"),
        median("b"),
        median("c"),
        median("d"),
        median("e"),
    );
    let parts = [
        ("pipe", a),
        ("relay", (e - d - a).max(b - a)),
        ("socket", c),
        ("wake", (d - c - lisp).max(0.0)),
        ("Lisp", lisp),
    ];
    let whole: f64 = parts.iter().map(|(_, time)| time).sum();
    let title = format!(
        "Emacs {}: where the {e:.0} microseconds of (+ 1 1) by the module go",
        figures["emacs"]
    );
    area.draw(&Text::new(title, (70, 8), font(17)))
        .expect("text");
    let (left, right, top, bottom) = (70.0, 880.0, 36, 70);
    let mut at = left;
    for ((name, time), colour) in parts.iter().zip(COLOURS.iter().rev()) {
        let end = at + (right - left) * time / whole;
        let corner = [(at as i32, top), (end as i32, bottom)];
        area.draw(&Rectangle::new(corner, colour.filled()))
            .expect("a bar");
        let text = ("sans-serif", 14).into_font().color(colour);
        area.draw(&Text::new(
            format!("{name} {time:.0}"),
            (at as i32 + 2, bottom + 8),
            text,
        ))
        .expect("text");
        at = end;
    }
}
