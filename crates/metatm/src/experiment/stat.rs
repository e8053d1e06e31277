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

/// Two-sided 95 % quantiles of Student's t for 1 to 10 degrees of freedom.
const T: [f64; 10] = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23];

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
    let t = T.get(n - 2).copied().unwrap_or(1.96);
    Mean { value, half: t * (variance / n as f64).sqrt() }
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
        assert!((m.half - 4.30 * 2.0 / 3f64.sqrt()).abs() < 1e-9);
        assert_eq!(mean(&[5.0]).half, 0.0);
    }

    #[test]
    fn correlation_looks_at_ranks_alone() {
        assert!((spearman(&[1.0, 2.0, 3.0], &[10.0, 200.0, 3000.0]) - 1.0).abs() < 1e-9);
        assert!((spearman(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]) + 1.0).abs() < 1e-9);
        assert_eq!(spearman(&[1.0, 1.0], &[1.0, 2.0]), 0.0);
    }
}
