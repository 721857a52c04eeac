//! The check of a schema, and what its versions mean to a build.

use sqlx::Pool;

use super::{Findings, Found, Schema};
use crate::error::Error;
use crate::store::sql::dialect::{Dialect, classify};

/// Reports everything that keeps the schema from being used, at once.
pub(crate) async fn check<D: Dialect>(pool: &Pool<D>, schema: Schema<'_>) -> Result<(), Error> {
    let mut conn = pool.acquire().await.map_err(classify::<D>)?;
    let mut findings = Findings::default();
    let found = D::look(&mut conn, schema, &mut findings).await;
    let found = found.map_err(classify::<D>)?;
    found.judge(schema, &mut findings);
    if !found.closed {
        let surveyed = D::survey(&mut conn, schema, &mut findings).await;
        surveyed.map_err(classify::<D>)?;
    }
    findings.into_result("")
}

const MIGRATE: &str = "run `migrate`, or the texts of `migrations`";

impl Found {
    /// Whether all of it is there and this build can work with it.
    pub(super) fn judge(&self, schema: Schema<'_>, findings: &mut Findings) {
        if self.closed {
            return;
        }
        for missing in &self.missing {
            let missing = format!("{missing} is missing, or not visible to this role");
            findings.add(missing, MIGRATE);
        }
        if !self.has_versions {
            let missing = format!(
                "{} is missing, or not visible to this role",
                schema.versions()
            );
            findings.add(missing, MIGRATE);
        }
        if let Some(at) = self.version {
            versions(schema.table, at, schema.latest(), findings);
        }
    }
}

impl Schema<'_> {
    pub(super) fn latest(self) -> i32 {
        self.shape.steps.last().map_or(0, |step| step.version)
    }
}

/// An older schema lacks what this build needs. A newer one tells which builds it serves.
fn versions(table: &str, (at, serves_from): (i32, i32), build: i32, findings: &mut Findings) {
    if at < build {
        findings.add(
            format!("{table} is at version {at}, this build needs {build}"),
            MIGRATE,
        );
    }
    if at > build && serves_from > build {
        findings.add(
            format!(
                "{table} is at version {at}, which serves builds from version {serves_from} on; this \
                 build is made for version {build}"
            ),
            "deploy a newer build: `migrate` does not go back",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{Findings, versions};

    #[test]
    fn a_newer_schema_says_which_builds_it_serves() {
        for (at, serves_from, build, serves) in [
            (1, 1, 1, true),
            (0, 0, 1, false),
            (2, 1, 3, false),
            (2, 1, 1, true),
            (3, 2, 1, false),
            (3, 2, 2, true),
            (3, 3, 3, true),
        ] {
            let mut findings = Findings::default();
            versions("t", (at, serves_from), build, &mut findings);
            assert_eq!(findings.is_empty(), serves, "{at} {serves_from} {build}");
        }
    }
}
