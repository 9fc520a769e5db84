//! The hot paths, timed.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use duologue_microbench::paths;

fn hot_paths(criterion: &mut Criterion) {
    for path in paths() {
        let (group, name) = path.name.split_once('/').unwrap_or(("", path.name));
        let mut group = criterion.benchmark_group(group);
        group.throughput(Throughput::Elements(path.items()));
        let mut work = path.prepare();
        group.bench_function(name, |bencher| bencher.iter(&mut work));
        group.finish();
    }
}

criterion_group!(benches, hot_paths);
criterion_main!(benches);
