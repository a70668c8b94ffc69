//! A line chart as SVG: places along x, a logarithmic scale along y.

use std::fmt::Write;

/// One line of a chart.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) color: &'static str,
    /// A positive value for each place along x.
    pub(crate) values: Vec<f64>,
}

/// A chart.
pub(crate) struct Chart {
    pub(crate) title: String,
    /// Lines of text below the title.
    pub(crate) notes: Vec<String>,
    /// Title of the x axis.
    pub(crate) x: String,
    /// Labels of the places along x.
    pub(crate) labels: Vec<String>,
    /// Title of the y axis.
    pub(crate) y: String,
    pub(crate) series: Vec<Series>,
}

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 580.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 110.0;
const TOP: f64 = 104.0;
const BOTTOM: f64 = 72.0;
/// The minimum distance between the names of two lines.
const NAME_GAP: f64 = 16.0;

/// A logarithmic scale between round numbers.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn around(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = values
            .filter(|value| *value > 0.0)
            .fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
        if high == 0.0 {
            return Self { low: 1.0, high: 10.0 };
        }
        let (low, high) = (round_down(low), round_up(high));
        Self { low, high: high.max(low * 2.0) }
    }

    /// Returns the position of a value: from 0 at the lower end to 1 at the upper.
    fn place(&self, value: f64) -> f64 {
        (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
    }

    /// Returns the round numbers to mark: 1, 2 and 5 of each decade, or only 1 if there are more
    /// than three decades.
    fn marks(&self) -> Vec<f64> {
        let decades = (self.high / self.low).log10();
        let steps: &[f64] = if decades > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let first = self.low.log10().floor() as i32;
        let last = self.high.log10().ceil() as i32;
        let marks = (first..=last)
            .flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)));
        marks.filter(|mark| *mark >= self.low * 0.999 && *mark <= self.high * 1.001).collect()
    }
}

fn round_down(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    [5.0, 2.0, 1.0]
        .into_iter()
        .map(|step| step * decade)
        .find(|mark| *mark <= value)
        .unwrap_or(decade)
}

fn round_up(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let marks = [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * decade);
    marks.into_iter().find(|mark| *mark >= value).unwrap_or(10.0 * decade)
}

/// Formats a number, without trailing zeros after the decimal point.
fn plain(value: f64) -> String {
    if value >= 1.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.3}").trim_end_matches('0').to_owned()
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

impl Chart {
    /// Draws the chart.
    pub(crate) fn draw(&self) -> String {
        let mut svg = String::new();
        let scale =
            Scale::around(self.series.iter().flat_map(|series| series.values.iter().copied()));
        // Writing to a string does not fail.
        let _ = self.frame(&mut svg);
        let _ = self.grid(&mut svg, &scale);
        let _ = self.lines(&mut svg, &scale);
        svg.push_str("</svg>\n");
        svg
    }

    fn x(&self, place: usize) -> f64 {
        let width = WIDTH - LEFT - RIGHT;
        match self.labels.len() {
            0 | 1 => LEFT + width / 2.0,
            places => LEFT + width * place as f64 / (places - 1) as f64,
        }
    }

    fn frame(&self, svg: &mut String) -> std::fmt::Result {
        let (middle, baseline) = (LEFT + (WIDTH - LEFT - RIGHT) / 2.0, HEIGHT - 20.0);
        let side = TOP + (HEIGHT - TOP - BOTTOM) / 2.0;
        writeln!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             font-family=\"system-ui, 'DejaVu Sans', sans-serif\" font-size=\"13\">"
        )?;
        writeln!(svg, "<title>{}</title>", escaped(&self.title))?;
        writeln!(svg, "<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>")?;
        writeln!(
            svg,
            "<text x=\"24\" y=\"34\" font-size=\"16\" font-weight=\"600\" fill=\"#111827\">{}</text>",
            escaped(&self.title)
        )?;
        for (line, note) in self.notes.iter().enumerate() {
            let y = 57 + 20 * line;
            writeln!(svg, "<text x=\"24\" y=\"{y}\" fill=\"#4b5563\">{}</text>", escaped(note))?;
        }
        writeln!(
            svg,
            "<text x=\"{middle:.1}\" y=\"{baseline:.1}\" text-anchor=\"middle\" \
             fill=\"#374151\">{}</text>",
            escaped(&self.x)
        )?;
        writeln!(
            svg,
            "<text transform=\"translate(24 {side:.1}) rotate(-90)\" text-anchor=\"middle\" \
             fill=\"#374151\">{}</text>",
            escaped(&self.y)
        )
    }

    fn grid(&self, svg: &mut String, scale: &Scale) -> std::fmt::Result {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for mark in scale.marks() {
            let y = y(scale, mark);
            writeln!(
                svg,
                "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#e5e7eb\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#374151\">{}</text>",
                LEFT - 10.0,
                y + 4.5,
                plain(mark)
            )?;
        }
        // At most 16 labels, the most that fit.
        let every = self.labels.len().div_ceil(16).max(1);
        for (place, label) in self.labels.iter().enumerate() {
            let x = self.x(place);
            writeln!(svg, "<path d=\"M{x:.1} {bottom}v5\" stroke=\"#9ca3af\"/>",)?;
            if place % every == 0 {
                writeln!(
                    svg,
                    "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#374151\">{}</text>",
                    bottom + 21.0,
                    escaped(label)
                )?;
            }
        }
        writeln!(svg, "<path d=\"M{LEFT} {bottom}H{right}\" stroke=\"#9ca3af\"/>")
    }

    fn lines(&self, svg: &mut String, scale: &Scale) -> std::fmt::Result {
        for series in &self.series {
            let color = series.color;
            let points = series.values.iter().enumerate();
            let points: Vec<(f64, f64)> =
                points.map(|(place, value)| (self.x(place), y(scale, *value))).collect();
            let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
            writeln!(
                svg,
                "<path d=\"M{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\" \
                 stroke-linejoin=\"round\"/>",
                path.join("L")
            )?;
            for ((x, y), value) in points.iter().zip(&series.values) {
                writeln!(
                    svg,
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{color}\">\
                     <title>{}: {value:.3}</title></circle>",
                    escaped(&series.name)
                )?;
            }
        }
        for (y, series) in self.names(scale) {
            writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{}\">{}</text>",
                WIDTH - RIGHT + 12.0,
                y + 4.5,
                series.color,
                escaped(&series.name)
            )?;
        }
        Ok(())
    }

    /// Returns the height of each line's name: at the end of the line, without overlap.
    fn names(&self, scale: &Scale) -> Vec<(f64, &Series)> {
        let ends = self
            .series
            .iter()
            .filter_map(|series| Some((y(scale, *series.values.last()?), series)));
        let mut names: Vec<(f64, &Series)> = ends.collect();
        names.sort_by(|a, b| a.0.total_cmp(&b.0));
        for index in 1..names.len() {
            names[index].0 = names[index].0.max(names[index - 1].0 + NAME_GAP);
        }
        names
    }
}

fn y(scale: &Scale, value: f64) -> f64 {
    HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * scale.place(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(values: &[&[f64]]) -> Chart {
        let places = values.first().map_or(0, |values| values.len());
        Chart {
            title: "A < B & C".to_owned(),
            notes: vec!["x > y".to_owned()],
            x: "size".to_owned(),
            labels: (0..places).map(|place| place.to_string()).collect(),
            y: "time".to_owned(),
            series: values
                .iter()
                .map(|values| Series {
                    name: "line".to_owned(),
                    color: "#000000",
                    values: values.to_vec(),
                })
                .collect(),
        }
    }

    #[test]
    fn every_series_is_a_line_with_its_points() {
        let svg = chart(&[&[1.0, 2.0, 3.0], &[4.0, 5.0, 600.0]]).draw();
        assert_eq!(svg.matches("<circle").count(), 6);
        assert_eq!(svg.matches("stroke-width=\"2\"").count(), 2);
        assert!(svg.contains("A &lt; B &amp; C") && svg.contains("x &gt; y"));
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn a_chart_of_one_point_or_none_is_drawn_too() {
        for values in [&[&[7.0_f64][..]][..], &[&[][..]], &[]] {
            let svg = chart(values).draw();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }

    #[test]
    fn the_scale_ends_at_round_numbers() {
        let scale = Scale::around([0.37, 42.0].into_iter());
        assert_eq!((scale.low, scale.high), (0.2, 50.0));
        assert_eq!(scale.marks().len(), 8);
        assert_eq!(scale.place(0.2), 0.0);
        assert_eq!(scale.place(50.0), 1.0);
        let wide = Scale::around([1.0, 99_999.0].into_iter());
        assert_eq!(wide.marks().len(), 6);
    }

    #[test]
    fn names_do_not_stand_on_one_another() {
        let chart = chart(&[&[10.0], &[10.0], &[10.1]]);
        let scale = Scale::around([10.0, 10.1].into_iter());
        let names = chart.names(&scale);
        assert!(names.windows(2).all(|two| two[1].0 - two[0].0 >= NAME_GAP));
    }
}
