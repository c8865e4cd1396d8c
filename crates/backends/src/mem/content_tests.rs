//! File content against a plain vector, and its limits.

use super::*;
use crate::mem::MemOptions;

fn space(pages: u64) -> Arc<Space> {
    Arc::new(Space::new(MemOptions { size_limit_bytes: Some(pages * PAGE), inode_limit: None }))
}

fn used(space: &Space) -> u64 {
    let s = space.statfs();
    s.blocks - s.bfree
}

/// A small generator, so that a failing run can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

#[test]
fn random_operations_match_a_vector() {
    const MAX: u64 = 6 * PAGE;
    let space = space(64);
    let mut random = Random(42);
    for _ in 0..20 {
        let mut content = Content::new(&space);
        let mut model: Vec<u8> = Vec::new();
        for step in 0..400_u64 {
            let (offset, len) = (random.below(MAX), random.below(2 * PAGE));
            match random.below(5) {
                0 | 1 => {
                    let data = vec![step as u8 | 1; len as usize];
                    assert_eq!(content.write(offset, &data), Ok(data.len()));
                    if !data.is_empty() {
                        let end = (offset + len) as usize;
                        model.resize(model.len().max(end), 0);
                        model[offset as usize..end].copy_from_slice(&data);
                    }
                }
                2 => {
                    content.set_size(offset).unwrap();
                    model.resize(offset as usize, 0);
                }
                3 => {
                    content.punch(offset..offset + len);
                    let end = ((offset + len) as usize).min(model.len());
                    if (offset as usize) < end {
                        model[offset as usize..end].fill(0);
                    }
                }
                _ => content.reserve(offset..offset + len).unwrap(),
            }
            let mut all = vec![0xff; model.len() + 10];
            assert_eq!(content.read(0, &mut all), model.len());
            assert_eq!(all[..model.len()], model[..], "after step {step}");
            assert_eq!(content.size(), model.len() as u64);
            assert_eq!(used(&space), content.page_count());
        }
        drop(content);
        assert_eq!(used(&space), 0);
    }
}

#[test]
fn a_terabyte_of_hole_costs_nothing() {
    let space = space(4);
    let mut content = Content::new(&space);
    content.set_size(1 << 40).unwrap();
    assert_eq!(content.seek(0, SeekFor::Data), Err(Errno::ENXIO));
    assert_eq!(content.seek(5, SeekFor::Hole), Ok(5));
    content.write((1 << 39) + 10, b"x").unwrap();
    assert_eq!(content.seek(0, SeekFor::Data), Ok(1 << 39));
    assert_eq!(content.seek(1 << 39, SeekFor::Hole), Ok((1 << 39) + PAGE));
    assert_eq!(used(&space), 1);
    content.punch(0..1 << 40);
    assert_eq!(used(&space), 0);
}

#[test]
fn the_end_is_a_hole_and_past_it_is_nothing() {
    let mut content = Content::new(&space(4));
    assert_eq!(content.seek(0, SeekFor::Hole), Err(Errno::ENXIO));
    content.write(0, b"abc").unwrap();
    assert_eq!(content.seek(0, SeekFor::Data), Ok(0));
    assert_eq!(content.seek(1, SeekFor::Hole), Ok(3));
    assert_eq!(content.seek(3, SeekFor::Hole), Err(Errno::ENXIO));
    assert_eq!(content.seek(3, SeekFor::Data), Err(Errno::ENXIO));
}

#[test]
fn space_ends_with_a_short_write_then_enospc() {
    let space = space(2);
    let mut content = Content::new(&space);
    assert_eq!(content.write(0, &[7; 3 * PAGE as usize]), Ok(2 * PAGE as usize));
    assert_eq!(content.write(2 * PAGE, b"x"), Err(Errno::ENOSPC));
    assert_eq!(content.reserve(0..3 * PAGE), Err(Errno::ENOSPC));
    assert_eq!(content.write(0, b"over"), Ok(4), "a page that is there can be written again");
    content.set_size(0).unwrap();
    assert_eq!(used(&space), 0);
    content.reserve(0..2 * PAGE).unwrap();
    assert_eq!(used(&space), 2);
}

#[test]
fn too_large_is_efbig() {
    let mut content = Content::new(&space(2));
    assert_eq!(content.set_size(SIZE_MAX + 1), Err(Errno::EFBIG));
    assert_eq!(content.write(SIZE_MAX, b"x"), Err(Errno::EFBIG));
    assert_eq!(content.write(SIZE_MAX - 1, b"xy"), Ok(1));
}
