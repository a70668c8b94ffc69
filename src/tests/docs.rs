//! The documents of the repository.

use std::fs::{read_dir, read_to_string};
use std::path::Path;

/// Returns the targets of the links in a text: what follows `](`, up to `)`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

#[test]
fn every_relative_link_of_a_document_leads_to_a_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut documents = Vec::new();
    for folder in [root.to_owned(), root.join("docs")] {
        for entry in read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md") {
                documents.push(path);
            }
        }
    }
    let mut count = 0;
    for document in documents {
        let text = read_to_string(&document).unwrap();
        for link in links(&text).filter(|link| !link.contains("://") && !link.starts_with('#')) {
            let file = link.split('#').next().unwrap_or_default();
            let target = document.parent().unwrap().join(file);
            assert!(target.exists(), "{}: the link {link} leads nowhere", document.display());
            count += 1;
        }
    }
    assert!(count > 10, "{count} links were found");
}
