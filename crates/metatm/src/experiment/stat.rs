//! Means, confidence intervals, rank correlation.

/// A mean with the half-width of its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Mean {
    /// The mean.
    pub value: f64,
    /// Half-width; 0 for a single sample.
    pub half: f64,
}

impl std::fmt::Display for Mean {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = f.precision().unwrap_or(1);
        write!(f, "{:.digits$} ± {:.digits$}", self.value, self.half)
    }
}

/// Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// The quantile for `freedom` degrees of freedom, at least 1. Beyond the table: the first terms of
/// the expansion around the normal distribution (Abramowitz and Stegun, 26.7.5), which differs from
/// the exact value by less than 0.0005 there.
fn t(freedom: usize) -> f64 {
    const Z: f64 = 1.959_964;
    let n = freedom as f64;
    T.get(freedom - 1).copied().unwrap_or_else(|| {
        Z + (Z.powi(3) + Z) / (4.0 * n)
            + (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / (96.0 * n * n)
    })
}

/// Mean and interval of `samples`, after Alameldeen and Wood: runs differ by perturbation alone.
pub fn mean(samples: &[f64]) -> Mean {
    let n = samples.len();
    if n == 0 {
        return Mean::default();
    }
    let value = samples.iter().sum::<f64>() / n as f64;
    if n == 1 {
        return Mean { value, half: 0.0 };
    }
    let variance = samples.iter().map(|x| (x - value).powi(2)).sum::<f64>() / (n - 1) as f64;
    Mean { value, half: t(n - 1) * (variance / n as f64).sqrt() }
}

fn ranks(xs: &[f64]) -> Vec<f64> {
    xs.iter()
        .map(|x| {
            let below = xs.iter().filter(|y| *y < x).count() as f64;
            let equal = xs.iter().filter(|y| *y == x).count() as f64;
            below + (equal + 1.0) / 2.0
        })
        .collect()
}

/// Spearman's rank correlation of paired samples; 0 if either is constant.
pub fn spearman(a: &[f64], b: &[f64]) -> f64 {
    let (a, b) = (ranks(a), ranks(b));
    let n = a.len() as f64;
    let (ma, mb) = (a.iter().sum::<f64>() / n, b.iter().sum::<f64>() / n);
    let cov: f64 = a.iter().zip(&b).map(|(x, y)| (x - ma) * (y - mb)).sum();
    let (va, vb): (f64, f64) =
        (a.iter().map(|x| (x - ma).powi(2)).sum(), b.iter().map(|y| (y - mb).powi(2)).sum());
    if va == 0.0 || vb == 0.0 { 0.0 } else { cov / (va * vb).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_is_students() {
        let m = mean(&[10.0, 12.0, 14.0]);
        assert!((m.value - 12.0).abs() < 1e-9);
        assert!((m.half - 4.303 * 2.0 / 3f64.sqrt()).abs() < 1e-9);
        assert_eq!(mean(&[5.0]).half, 0.0);
    }

    #[test]
    fn the_quantile_is_right_for_any_number_of_samples() {
        for (freedom, exact) in [(1, 12.706), (11, 2.201), (30, 2.042), (40, 2.021), (120, 1.980)] {
            assert!((t(freedom) - exact).abs() < 1e-3, "{freedom}: {}", t(freedom));
        }
        let samples: Vec<f64> = (0..12).map(f64::from).collect();
        // Standard deviation of 0 to 11 is the root of 13.
        assert!((mean(&samples).half - 2.201 * (13f64 / 12.0).sqrt()).abs() < 1e-9);
    }

    #[test]
    fn correlation_looks_at_ranks_alone() {
        assert!((spearman(&[1.0, 2.0, 3.0], &[10.0, 200.0, 3000.0]) - 1.0).abs() < 1e-9);
        assert!((spearman(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]) + 1.0).abs() < 1e-9);
        assert_eq!(spearman(&[1.0, 1.0], &[1.0, 2.0]), 0.0);
    }
}
