//! What colour a frame has in a flame graph: a hue for where its code is from, a shade for
//! its file, so that one file's frames look alike and neighbours can be told apart.

use inferno::flamegraph::color::Color;

use crate::export::paths::below_python;
use crate::stack::{Frame, FrameKind};

/// Hues in degrees, from and to; saturation and lightness of a hundred.
struct Shades {
    hue: (u32, u32),
    saturation: u32,
    lightness: (u32, u32),
}

const fn shades(hue: (u32, u32), saturation: u32, lightness: (u32, u32)) -> Shades {
    Shades {
        hue,
        saturation,
        lightness,
    }
}

const PROGRAM: Shades = shades((12, 34), 88, (64, 73));
const STANDARD_LIBRARY: Shades = shades((43, 54), 84, (66, 75));
const PACKAGES: Shades = shades((150, 184), 46, (62, 71));
const NATIVE: Shades = shades((203, 222), 62, (69, 77));
const KERNEL: Shades = shades((258, 280), 48, (74, 81));
const COLLECTOR: Shades = shades((338, 346), 74, (70, 74));
const ROOTS: Shades = shades((210, 214), 16, (80, 85));
const STATES: Shades = shades((76, 120), 34, (66, 76));
const MARKS: Shades = shades((0, 0), 0, (84, 88));

pub(super) fn colour(frame: &Frame) -> Color {
    let shades = match frame.kind {
        FrameKind::Python => of_python(&frame.file),
        FrameKind::Native => &NATIVE,
        FrameKind::Kernel => &KERNEL,
        FrameKind::Gc => &COLLECTOR,
        FrameKind::Thread | FrameKind::Process | FrameKind::Task => &ROOTS,
        FrameKind::State => &STATES,
        FrameKind::Cut | FrameKind::Unknown => &MARKS,
    };
    let place = match frame.kind {
        FrameKind::State => &frame.function,
        _ => frame.module.as_ref().unwrap_or(&frame.file),
    };
    let hue = pick(shades.hue, hash(place));
    let lightness = pick(shades.lightness, hash(&frame.function));
    rgb(hue, shades.saturation, lightness)
}

fn of_python(file: &str) -> &'static Shades {
    if file.contains("/site-packages/") || file.contains("/dist-packages/") {
        &PACKAGES
    } else if file.starts_with("<frozen ") || below_python(file).is_some() {
        &STANDARD_LIBRARY
    } else {
        &PROGRAM
    }
}

fn pick((from, to): (u32, u32), hash: u32) -> u32 {
    from + hash % (to - from + 1)
}

/// FNV-1a, so that a name has the same colour in every graph.
fn hash(text: &str) -> u32 {
    let hash = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    hash ^ (hash >> 15)
}

fn rgb(hue: u32, saturation: u32, lightness: u32) -> Color {
    let s = f64::from(saturation) / 100.0;
    let l = f64::from(lightness) / 100.0;
    let channel = |n: f64| {
        let k = (n + f64::from(hue) / 30.0) % 12.0;
        let value = l - s * l.min(1.0 - l) * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0);
        // In 0..=255 by construction; the cast saturates anyway.
        (value * 255.0).round() as u8
    };
    Color {
        r: channel(0.0),
        g: channel(8.0),
        b: channel(4.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hues_are_what_they_are_called() {
        let check = |hsl: (u32, u32, u32), r, g, b| {
            assert_eq!(rgb(hsl.0, hsl.1, hsl.2), Color { r, g, b });
        };
        check((0, 100, 50), 255, 0, 0);
        check((120, 100, 50), 0, 255, 0);
        check((240, 100, 50), 0, 0, 255);
        check((60, 100, 50), 255, 255, 0);
        check((0, 0, 100), 255, 255, 255);
        check((210, 50, 40), 51, 102, 153);
    }
}
