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

/// Draws `figures` into `file`.
pub(crate) fn draw(figures: &Value, file: &Path) {
    let root = SVGBackend::new(file, (900, 560)).into_drawing_area();
    let (above, below) = root.split_vertically(400);
    sizes(figures, &above);
    parts(figures, &below);
    root.present().expect("a file");
}

fn font(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&TEXT)
}

fn sizes(figures: &Value, area: &Area<'_>) {
    let rows = figures["sizes"]["rows"].as_array().expect("rows");
    let title = format!(
        "A value from Emacs {} to the client (p50)",
        figures["emacs"]
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
        let points: Vec<_> = rows
            .iter()
            .map(|row| {
                (
                    row["chars"].as_f64().expect("a number"),
                    row[key]["p50_us"].as_f64().expect("a number") / 1e3,
                )
            })
            .collect();
        let first = points[0];
        chart
            .draw_series(LineSeries::new(points.clone(), colour.stroke_width(3)))
            .expect("a line");
        chart
            .draw_series(
                points
                    .into_iter()
                    .map(|point| Circle::new(point, 4, colour.filled())),
            )
            .expect("points");
        let text = ("sans-serif", 15).into_font().color(&colour);
        // Above its line, where the lines are apart.
        let above = (first.0 * 1.15, first.1 * 1.9);
        let label = Text::new((*label).to_owned(), above, text);
        chart.draw_series([label]).expect("a label");
    }
}

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
    let title = format!("Where the {e:.0} microseconds of (+ 1 1) by the module go");
    area.draw(&Text::new(title, (70, 16), font(17)))
        .expect("text");
    let (left, right, top, bottom) = (70.0, 880.0, 48, 92);
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
    let machine = figures["machine"].as_str().unwrap_or_default();
    area.draw(&Text::new(machine.to_owned(), (70, 128), font(13)))
        .expect("text");
}
