//! The packages in which bugs are planted.

/// A package with planted bugs.
pub(super) struct Package {
    /// Its folder in the workspace, with a trailing slash; empty for the workspace's own package.
    pub(super) folder: &'static str,
    pub(super) name: &'static str,
    /// Folders and files below its `src` in which bugs are planted.
    parts: &'static [&'static str],
}

/// All of a package's sources.
const WHOLE: &[&str] = &[""];

/// The packages with planted bugs; all their tests run.
pub(super) const PACKAGES: [Package; 7] = [
    Package {
        folder: "",
        name: "mlx5",
        parts: &[
            "ethernet/",
            "flow/",
            "memory/mkey/",
            "pools/",
            "qp/",
            "rss/",
            "srq/",
            "tag_matching/",
        ],
    },
    Package { folder: "wqe/", name: "mlx5-wqe", parts: WHOLE },
    Package { folder: "cq/", name: "mlx5-cq", parts: WHOLE },
    Package { folder: "cm/", name: "mlx5-cm", parts: WHOLE },
    Package { folder: "async/", name: "mlx5-async", parts: WHOLE },
    Package { folder: "verbs/", name: "mlx5-verbs", parts: WHOLE },
    Package { folder: "sim/preload/", name: "mlx5-sim-preload", parts: WHOLE },
];

impl Package {
    /// Folder of its sources.
    pub(super) fn sources(&self) -> String {
        format!("{}src", self.folder)
    }

    /// Patterns of the files in which bugs are planted.
    pub(super) fn planted(&self) -> impl Iterator<Item = String> {
        self.parts.iter().map(|part| format!("{}src/{part}**", self.folder))
    }

    /// Relative path from its folder to the workspace's.
    pub(super) fn up(&self) -> String {
        "../".repeat(self.folder.matches('/').count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// A renamed folder would silently have no bugs.
    #[test]
    fn every_package_has_the_sources_in_which_bugs_are_planted() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        for package in PACKAGES {
            let folder = root.join(package.folder);
            let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
            assert!(manifest.contains(&format!("\nname = \"{}\"\n", package.name)));
            assert!(manifest.contains("\n[dependencies]\n"), "{}", package.name);
            assert!(folder.join(package.up()).join("deny.toml").exists(), "{}", package.name);
            for pattern in package.planted() {
                let part = root.join(pattern.strip_suffix("**").expect("all below a folder"));
                assert!(part.is_dir(), "{}", part.display());
            }
        }
    }
}
