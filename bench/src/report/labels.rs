// SPDX-License-Identifier: GPL-2.0-only
//! Where names stand on a picture: beside what they name, on nothing else.

/// The height of a name, and the mean width of its letters.
pub const LABEL_STEP: f64 = 14.0;
pub const LETTER: f64 = 6.7;

/// What names must stay in.
pub struct Frame {
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
}

/// A rectangle that is taken: left, top, right, bottom.
pub type Taken = [f64; 4];

fn overlap(a: &Taken, b: &Taken) -> bool {
    a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3]
}

/// The free place nearest to one of some points for a text of that width, and which point that is: beside it, then
/// further up and down.
pub fn place(
    frame: &Frame,
    points: &[(f64, f64)],
    width: f64,
    taken: &[Taken],
) -> ((f64, f64), Taken) {
    let at = |left: f64, middle: f64| -> Taken {
        [
            left,
            middle - LABEL_STEP / 2.0,
            left + width,
            middle + LABEL_STEP / 2.0,
        ]
    };
    let inside = |r: &Taken| {
        r[0] >= frame.left && r[2] <= frame.right && r[1] >= frame.top && r[3] <= frame.bottom
    };
    let free = |r: &Taken| inside(r) && !taken.iter().any(|other| overlap(r, other));
    let steps = (2.0 * frame.bottom / (LABEL_STEP / 2.0)) as u32;
    (0..steps)
        .flat_map(|step| {
            // 0, 1 down, 1 up, 2 down, 2 up, in half steps
            let away = f64::from(step.div_ceil(2)) * LABEL_STEP / 2.0;
            points.iter().flat_map(move |&(x, y)| {
                let middle = if step % 2 == 1 { y + away } else { y - away };
                [x + 11.0, x - 11.0 - width].map(|left| ((x, y), at(left, middle)))
            })
        })
        .find(|(_, place)| free(place))
        .unwrap_or_else(|| (points[0], at(points[0].0 + 11.0, points[0].1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Frame = Frame {
        left: 56.0,
        top: 22.0,
        right: 520.0,
        bottom: 312.0,
    };

    #[test]
    fn names_lie_neither_on_points_nor_on_one_another() {
        let points = [(100.0, 150.0)];
        let point = [93.0, 143.0, 107.0, 157.0];
        let (_, first) = place(&FRAME, &points, 80.0, &[point]);
        let (_, second) = place(&FRAME, &points, 80.0, &[point, first]);
        assert_eq!(first[0], 111.0);
        assert!(
            !overlap(&first, &second) && !overlap(&point, &second),
            "{first:?} {second:?}"
        );
        // Where the first point is hemmed in, the name goes to the second.
        let wall = [0.0, 0.0, FRAME.right, 290.0];
        let (chosen, _) = place(&FRAME, &[(100.0, 150.0), (100.0, 300.0)], 80.0, &[wall]);
        assert_eq!(chosen, (100.0, 300.0));
    }
}
