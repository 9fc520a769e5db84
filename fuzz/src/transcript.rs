//! Transcripts and logs: whatever stands in the file, reading ends, and what was read is written so that
//! it reads the same.

use duologue_transcript::{Error, Importer, Reader, Record, Side, Transcript};

/// A file.
pub fn check(input: &[u8]) {
    if let Ok(reader) = Reader::new(input) {
        let header = serde_json::to_string(reader.header()).expect("a header that was read");
        written_again(&header, &records(reader));
    }
    for side in [Side::Client, Side::Agent] {
        let importer = Importer::new(input).seen_by(side);
        let header = serde_json::to_string(&importer.header()).expect("a header that was made");
        let records = records(importer);
        assert!(records.is_sorted_by_key(|record| record.at), "time went back");
        written_again(&header, &records);
    }
    if let Ok(transcript) = Transcript::read(input) {
        assert!(transcript.entries().len() <= transcript.records().len());
        let mut file = Vec::new();
        transcript.write(&mut file).expect("memory");
        let again = Transcript::read(&*file).expect("what was written can be read");
        assert_eq!(again.records(), transcript.records());
        assert_eq!(again.header(), transcript.header());
    }
}

/// All records; a bad line costs that line.
fn records(reader: impl Iterator<Item = Result<Record, Error>>) -> Vec<Record> {
    reader.filter_map(Result::ok).collect()
}

fn written_again(header: &str, records: &[Record]) {
    let mut file = format!("{header}\n").into_bytes();
    for record in records {
        let before = file.len();
        record.write(&mut file);
        assert_eq!(
            file[before..].iter().position(|byte| *byte == b'\n'),
            Some(file.len() - before - 1),
            "one line"
        );
    }
    let reader = Reader::new(&*file).expect("the header reads again");
    let again: Vec<Record> = reader.map(|record| record.expect("a record reads again")).collect();
    assert_eq!(again, records);
}
