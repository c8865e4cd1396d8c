//! Runs as one page: a question after the other, with its answer, its bars and its table.
//!
//! One file without scripts or other files: it reads on a telephone, prints, and follows the reader's choice of light or dark. What
//! is not written here is not hidden: the JSON beside it has every single turn.

use std::fmt::{self, Display, Write as _};
use std::path::{Path, PathBuf};

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::numbers::extremes;
use crate::record::{Case, Document, Row, unit};
use crate::report::short;
use crate::scenario::Scenario;
use crate::{Error, scenarios};

/// Readable on white and on black.
const INK: RGBColor = RGBColor(128, 128, 128);
const OURS: RGBColor = RGBColor(46, 134, 193);
const THEIRS: RGBColor = RGBColor(176, 140, 84);
/// What an arm is called that does the loop without the work.
const CONTROL: &str = "control";

const STYLE: &str = "
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
h1, h2, h3 { line-height: 1.2; }
h2 { margin-top: 3rem; border-top: 1px solid #8888; padding-top: 1rem; }
.answer { font-size: 1.1rem; font-weight: 600; }
.method { color: #777; font-size: .9rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid #8884; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.ours { font-weight: 600; }
svg { max-width: 100%; height: auto; }
@media print { h2 { break-before: page; } }
";

/// Reads every run in `directory` and writes the page.
pub(crate) fn run(directory: &Path, html: &Path) -> Result<(), Error> {
    let runs = read_all(directory)?;
    let page = page(&runs)?;
    std::fs::write(html, page).map_err(|why| failed(html, &why))?;
    println!("{}: {} of {}", html.display(), counted(runs.len(), "run"), directory.display());
    Ok(())
}

fn failed(path: &Path, why: &dyn Display) -> Error {
    Error::Usage(format!("{}: {why}", path.display()))
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// All runs of a directory, by name. A file that is no run is an error: a page must not leave something out in silence.
fn read_all(directory: &Path) -> Result<Vec<(String, Document)>, Error> {
    let entries = std::fs::read_dir(directory).map_err(|why| failed(directory, &why))?;
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(|why| failed(directory, &why))?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    if paths.is_empty() {
        return Err(failed(directory, &"no .json file that `run --json` or `goals --json` wrote"));
    }
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    paths.iter().map(|path| Ok((name(path), Document::read(path)?))).collect()
}

fn page(runs: &[(String, Document)]) -> Result<String, Error> {
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>vfscale-lab</title>\n<style>{STYLE}</style>\n\
         <h1>vfscale-lab</h1>\n<p>What each mechanism is worth beside what one would take instead. Bars are medians, \
         the line on a bar goes from the lowest to the highest turn. More threads than processors is oversubscription, not scaling.</p>\n"
    );
    for (file, document) in runs {
        let stopped = if document.interrupted { " Stopped before its end." } else { "" };
        let machine = document.machine.to_string().replace('\n', "; ");
        put(
            &mut text,
            format_args!(
                "<p class=\"method\"><a href=\"{0}\">{0}</a>: {1}.{stopped}</p>\n",
                Escaped(file),
                Escaped(&machine)
            ),
        );
    }
    for scenario in scenarios::ALL {
        for (file, document) in runs {
            let rows: Vec<&Row> =
                document.rows.iter().filter(|row| row.case.scenario == scenario.name).collect();
            if !rows.is_empty() {
                question(&mut text, scenario, file, &rows)?;
            }
        }
    }
    Ok(text)
}

/// One question of one run.
fn question(
    text: &mut String,
    scenario: &Scenario,
    file: &str,
    rows: &[&Row],
) -> Result<(), Error> {
    put(
        text,
        format_args!(
            "<h2 id=\"{0}\">{0}</h2>\n<p>{1} <span class=\"method\">({2})</span></p>\n",
            scenario.name,
            Escaped(scenario.question),
            Escaped(scenario.source)
        ),
    );
    let mut cases: Vec<&Case> = rows.iter().map(|row| &row.case).collect();
    cases.dedup();
    let answers: Vec<String> =
        cases.iter().filter_map(|case| answer(scenario, case, rows)).collect();
    put(text, format_args!("<p class=\"answer\">{}</p>\n", Escaped(&answers.join(" "))));
    for case in cases {
        let of_it: Vec<&Row> = rows.iter().copied().filter(|row| row.case == *case).collect();
        put(
            text,
            format_args!(
                "<h3>{}</h3>\n{}\n",
                Escaped(&title(case, &of_it)),
                bars(scenario, &of_it)?
            ),
        );
    }
    table(text, rows);
    put(
        text,
        format_args!(
            "<p class=\"method\">One operation is {0}. Arms in turns, every second round backwards; each turn on a fresh object, its counts \
         checked. {2} thrown away for other load. Every turn: <a href=\"{1}\">{1}</a>.</p>\n<ul class=\"method\">\n",
            Escaped(scenario.operation),
            Escaped(file),
            counted(
                rows.iter().map(|row| row.rejected as usize).max().unwrap_or_default(),
                "round"
            ),
        ),
    );
    for arm in scenario.arms.iter().filter(|arm| rows.iter().any(|row| row.arm == arm.name)) {
        put(text, format_args!("<li>{}: {}</li>\n", arm.name, Escaped(arm.what)));
    }
    text.push_str("</ul>\n");
    Ok(())
}

fn title(case: &Case, rows: &[&Row]) -> String {
    let crowded = rows.iter().any(|row| row.oversubscribed);
    let mut title = counted(case.threads, "thread");
    if case.think_ns > 0 {
        let _ = write!(title, ", {} ns of thought between operations", case.think_ns);
    }
    title + if crowded { " (oversubscribed)" } else { "" }
}

/// The first arm of a scenario is the subject; the best of the others is what it has to beat.
fn answer(scenario: &Scenario, case: &Case, rows: &[&Row]) -> Option<String> {
    let rate = |row: &Row| row.median("rate");
    let of_case = || rows.iter().filter(|row| row.case == *case);
    let ours = of_case().find(|row| row.arm == scenario.arms[0].name)?;
    let best = of_case()
        .filter(|row| row.arm != ours.arm && row.arm != CONTROL)
        .max_by(|a, b| rate(a).unwrap_or(f64::MIN).total_cmp(&rate(b).unwrap_or(f64::MIN)))?;
    let ratio = rate(ours)? / rate(best)?;
    let think = if case.think_ns > 0 { " with thought" } else { "" };
    Some(format!(
        "{}{think}: {} does {ratio:.2} times the rate of {}, the best of the others.",
        counted(case.threads, "thread"),
        ours.arm,
        best.arm
    ))
}

fn table(text: &mut String, rows: &[&Row]) {
    let mut metrics: Vec<&str> = rows.iter().flat_map(|row| row.metrics()).collect();
    metrics.sort_unstable();
    metrics.dedup();
    text.push_str("<div class=\"wide\"><table>\n<tr><th>arm<th>threads<th>think");
    for metric in &metrics {
        let unit = unit(metric);
        let unit = if unit.is_empty() { String::new() } else { format!(" ({unit})") };
        put(text, format_args!("<th>{}{unit}", Escaped(metric.trim_end_matches("_us"))));
    }
    text.push('\n');
    for row in rows {
        put(
            text,
            format_args!("<tr><td>{}<td>{}<td>{}", row.arm, row.case.threads, row.case.think_ns),
        );
        for metric in &metrics {
            match row.median(metric).zip(extremes(&row.values(metric))) {
                Some((median, (low, high))) => put(
                    text,
                    format_args!(
                        "<td title=\"{} to {}\">{}",
                        short(low),
                        short(high),
                        short(median)
                    ),
                ),
                None => text.push_str("<td>"),
            }
        }
        text.push('\n');
    }
    text.push_str("</table></div>\n");
}

/// The rates of one case as bars, as SVG.
fn bars(scenario: &Scenario, rows: &[&Row]) -> Result<String, Error> {
    // The control does no work: beside it all others are short.
    let rows: Vec<&Row> = rows.iter().copied().filter(|row| row.arm != CONTROL).collect();
    let highest =
        rows.iter().filter_map(|row| Some(extremes(&row.values("rate"))?.1)).fold(0.0, f64::max);
    if highest <= 0.0 {
        return Ok(String::new());
    }
    const LINE: i32 = 26;
    const LABEL: i32 = 100;
    const WIDTH: i32 = 480;
    let room = f64::from(WIDTH - LABEL - 80);
    let x = |value: f64| LABEL + (value / highest * room) as i32;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(
            &mut svg,
            (WIDTH as u32, (LINE * rows.len() as i32 + 4) as u32),
        )
        .into_drawing_area();
        let ink = TextStyle::from(("sans-serif", 14).into_font()).color(&INK);
        let draw = || -> Result<(), DrawingAreaErrorKind<_>> {
            for (index, row) in rows.iter().enumerate() {
                let (top, values) = (LINE * index as i32 + 3, row.values("rate"));
                let median = row.median("rate").unwrap_or_default();
                let (low, high) = extremes(&values).unwrap_or_default();
                let middle = top + LINE / 2 - 2;
                let color = if row.arm == scenario.arms[0].name { OURS } else { THEIRS };
                area.draw(&Rectangle::new(
                    [(LABEL, top), (x(median), top + LINE - 6)],
                    color.filled(),
                ))?;
                area.draw(&PathElement::new(
                    [(x(low), middle), (x(high), middle)],
                    INK.stroke_width(2),
                ))?;
                let left = ink.pos(Pos::new(HPos::Right, VPos::Center));
                area.draw(&Text::new(row.arm.clone(), (LABEL - 8, middle), left))?;
                let right = ink.pos(Pos::new(HPos::Left, VPos::Center));
                let rate = format!("{}/s", short(median));
                area.draw(&Text::new(rate, (x(median.max(high)) + 6, middle), right))?;
            }
            area.present()
        };
        draw().map_err(|why| Error::Usage(format!("the plot of {}: {why}", scenario.name)))?;
    }
    Ok(svg)
}

/// Text between tags, or in an attribute.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|char| match char {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            other => f.write_char(other),
        })
    }
}

/// Writing to a string does not fail.
fn put(text: &mut String, what: fmt::Arguments<'_>) {
    let _ = text.write_fmt(what);
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
