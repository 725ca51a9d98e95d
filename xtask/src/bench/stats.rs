//! Medians.

use std::time::Duration;

/// The middle one, or the mean of the two in the middle.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[half]),
        _ => Some((sorted[half - 1] + sorted[half]) / 2.0),
    }
}

/// The median of the ratios of what was measured in the same rounds.
pub fn ratio(above: &[f64], below: &[f64]) -> Option<f64> {
    let ratios: Vec<f64> = above.iter().zip(below).map(|(a, b)| a / b.max(1e-9)).collect();
    median(&ratios)
}

/// The least value that so large a part of all does not pass.
pub fn part(values: &[f64], part: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(n.max(1) - 1).copied()
}

/// Seconds for the eye.
pub fn seconds(value: f64) -> String {
    show(Duration::from_secs_f64(value.max(0.0)))
}

/// The median of durations.
pub fn middle(values: &[Duration]) -> Option<Duration> {
    median(&values.iter().map(Duration::as_secs_f64).collect::<Vec<_>>()).map(Duration::from_secs_f64)
}

/// A duration for the eye: three digits.
pub fn show(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1e3;
    match ms {
        0.0..10.0 => format!("{ms:.2} ms"),
        10.0..100.0 => format!("{ms:.1} ms"),
        100.0..1000.0 => format!("{ms:.0} ms"),
        1000.0..100_000.0 => format!("{:.2} s", ms / 1e3),
        _ => format!("{:.0} s", ms / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_ratios() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
        let ms = |list: &[u64]| list.iter().map(|n| Duration::from_millis(*n)).collect::<Vec<_>>();
        // Pairs, not medians: 10/1, 10/10, 30/10.
        let found = ratio(&[10.0, 10.0, 30.0], &[1.0, 10.0, 10.0]).unwrap();
        assert!((found - 3.0).abs() < 1e-9);
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(
            (part(&hundred, 0.99), part(&hundred, 1.0), part(&[], 0.5)),
            (Some(99.0), Some(100.0), None)
        );
        assert_eq!(middle(&ms(&[5, 1, 9])), Some(Duration::from_millis(5)));
        assert_eq!(show(Duration::from_micros(4_216)), "4.22 ms");
        assert_eq!(show(Duration::from_millis(20_412)), "20.41 s");
    }
}
