//! The statements, for tables of any name.

use std::sync::{Arc, Mutex, PoisonError};

use tokio_postgres::SimpleQueryRow;

use crate::error::Error;

/// The tables' names in the `.sql` files, and the suffixes of their indexes.
const RECORDS: &str = "once_records";
const MARKS: &str = "once_marks";
const PURGE_SUFFIX: &str = "_purge";
const OPEN_SUFFIX: &str = "_open";

/// The suffix that turns the name of the records' table into the name of the marks' table, unless both have their
/// default names.
const MARKS_SUFFIX: &str = "_marks";

/// The maximum length, in bytes. PostgreSQL truncates longer names without an error.
const MAX_NAME_BYTES: usize = 63 - MARKS_SUFFIX.len() - PURGE_SUFFIX.len();

/// The name of the records' table, from which the name of the marks' table follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableName {
    /// `None` for the first schema in the role's `search_path` that has the table.
    pub(super) schema: Option<String>,
    pub(super) table: String,
    /// The schema of the marks, if it differs.
    pub(super) schema_of_marks: Option<String>,
}

impl Default for TableName {
    fn default() -> Self {
        Self { schema: None, table: RECORDS.to_owned(), schema_of_marks: None }
    }
}

impl TableName {
    pub(super) fn check(&self) -> Result<(), Error> {
        let names = [Some(&self.table), self.schema.as_ref()];
        if names.into_iter().flatten().any(|name| name.is_empty() || name.contains('\0')) {
            return Err(Error::config("the names of the table and of its schema must not be empty or hold a NUL"));
        }
        if names.into_iter().flatten().any(|name| name.len() > MAX_NAME_BYTES) {
            return Err(Error::config(format!(
                "the names of the table and of its schema must not be longer than {MAX_NAME_BYTES} bytes"
            )));
        }
        Ok(())
    }

    fn marks(&self) -> String {
        if self.table == RECORDS { MARKS.to_owned() } else { format!("{}{MARKS_SUFFIX}", self.table) }
    }

    /// Returns the names of both tables in the `.sql` files and in the database, the latter also with the schema.
    fn names(&self) -> [(&'static str, String, String); 2] {
        let marks = self.marks();
        let schema_of_marks = self.schema_of_marks.as_ref().or(self.schema.as_ref());
        let qualified = [qualified(self.schema.as_ref(), &self.table), qualified(schema_of_marks, &marks)];
        let [records_in, marks_in] = qualified;
        [(RECORDS, self.table.clone(), records_in), (MARKS, marks, marks_in)]
    }

    /// Returns a statement for these tables.
    fn fill(&self, sql: &str) -> String {
        let names = self.names();
        let (mut filled, mut rest) = (String::new(), sql);
        let next = |text: &str| {
            let found = names.iter().filter_map(|names| Some((text.find(names.0)?, names)));
            found.min_by_key(|(start, _)| *start)
        };
        while let Some((start, (placeholder, name, qualified))) = next(rest) {
            filled.push_str(&rest[..start]);
            rest = &rest[start + placeholder.len()..];
            let suffix = [PURGE_SUFFIX, OPEN_SUFFIX].into_iter().find(|suffix| rest.starts_with(suffix));
            match suffix {
                Some(suffix) => {
                    filled.push_str(&quoted(&format!("{name}{suffix}")));
                    rest = &rest[suffix.len()..];
                }
                None => filled.push_str(qualified),
            }
        }
        filled + rest
    }

    /// Returns the definitions of both tables, and of the index for lists, if there is one.
    fn tables(&self, has_listing_index: bool) -> Vec<Table> {
        let [(_, records, records_in), (_, marks, marks_in)] = self.names();
        let [of_records, of_marks] = [include_str!("schema.sql"), include_str!("schema_marks.sql")];
        let index = |table: &str| format!("{table}{PURGE_SUFFIX}");
        let open = has_listing_index.then(|| Table {
            name: records_in.clone(),
            index: format!("{records}{OPEN_SUFFIX}"),
            schema: self.fill(include_str!("schema_open.sql")),
        });
        let tables = [
            Table { name: records_in, index: index(&records), schema: self.fill(of_records) },
            Table { name: marks_in, index: index(&marks), schema: self.fill(of_marks) },
        ];
        tables.into_iter().chain(open).collect()
    }

    /// Returns a statement that returns the transaction's id, and begins to write in it. Without a schema it also
    /// returns the tables' schemas, because the handler's statements may change the `search_path` until the outcome is
    /// recorded.
    fn of_transaction(&self) -> String {
        let mut sql = "SELECT pg_current_xact_id()::text AS id".to_owned();
        if self.schema.is_none() {
            for (column, _, name) in self.names() {
                let name = name.replace('\\', r"\\").replace('\'', "''");
                sql += &format!(
                    ", (SELECT nspname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace \
                     WHERE c.oid = to_regclass(E'{name}')) AS {column}"
                );
            }
        }
        sql
    }
}

fn qualified(schema: Option<&String>, table: &str) -> String {
    schema.map_or(String::new(), |schema| format!("{}.", quoted(schema))) + &quoted(table)
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A table or index that [`migrate`](super::PostgresStore::migrate) creates.
#[derive(Debug)]
pub(super) struct Table {
    /// Quoted.
    pub(super) name: String,
    pub(super) index: String,
    /// The statements that create both.
    pub(super) schema: String,
}

#[derive(Debug)]
pub(super) struct Statements {
    /// The name of the records' table in traces: not quoted, with its schema if that was given.
    pub(super) records: String,
    pub(super) claim: String,
    pub(super) select: String,
    pub(super) locked: String,
    pub(super) settle: String,
    pub(super) amend: String,
    pub(super) release: String,
    pub(super) hold_mark: String,
    pub(super) hold_record: String,
    pub(super) read_mark: String,
    /// The statement of an operator who ends doubt.
    pub(super) resolve_mark: String,
    pub(super) write_mark: String,
    pub(super) purge: String,
    pub(super) purge_marks: String,
    pub(super) list: String,
    /// The list by the index, or `None` without one.
    pub(super) list_open: Option<String>,
    pub(super) tables: Vec<Table>,
    /// The statements that create all of them.
    pub(super) schema: String,
    /// Follows `BEGIN`.
    pub(super) of_transaction: String,
    names: TableName,
    /// The same statements with the schemas that were found last.
    found: Mutex<Option<Arc<Self>>>,
}

impl Statements {
    pub(super) fn new(names: &TableName, has_listing_index: bool) -> Self {
        let select = names.fill(include_str!("select.sql"));
        let tables = names.tables(has_listing_index);
        Self {
            records: names.schema.iter().chain([&names.table]).cloned().collect::<Vec<_>>().join("."),
            claim: names.fill(include_str!("claim.sql")),
            hold_record: format!("{select}FOR UPDATE"),
            select,
            locked: names.fill(include_str!("locked.sql")),
            settle: names.fill(include_str!("settle.sql")),
            amend: names.fill(include_str!("amend.sql")),
            release: names.fill(include_str!("release.sql")),
            hold_mark: names.fill(include_str!("hold_mark.sql")),
            read_mark: names.fill(include_str!("read_mark.sql")),
            resolve_mark: names.fill(include_str!("resolve_mark.sql")),
            write_mark: names.fill(include_str!("write_mark.sql")),
            purge: names.fill(include_str!("purge.sql")),
            purge_marks: names.fill(include_str!("purge_marks.sql")),
            list: names.fill(include_str!("list.sql")),
            list_open: has_listing_index.then(|| names.fill(include_str!("list_open.sql"))),
            schema: tables.iter().map(|table| table.schema.as_str()).collect(),
            tables,
            of_transaction: names.of_transaction(),
            names: names.clone(),
            found: Mutex::default(),
        }
    }

    /// Returns the statements of a transaction, qualified with the schemas in the row of `of_transaction`, because its
    /// handler may change the `search_path`. If the table is missing, the statements are unchanged and fail.
    pub(super) fn within(self: &Arc<Self>, row: &SimpleQueryRow) -> Arc<Self> {
        let schema = |column| row.try_get(column).ok().flatten().map(str::to_owned);
        let Some(schema_of_records) = schema(RECORDS) else { return Arc::clone(self) };
        let names = TableName {
            schema: Some(schema_of_records),
            schema_of_marks: schema(MARKS),
            table: self.names.table.clone(),
        };
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        match &*found {
            Some(statements) if statements.names == names => Arc::clone(statements),
            _ => Arc::clone(found.insert(Arc::new(Self::new(&names, self.list_open.is_some())))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_wherever_they_stand() {
        let name = TableName { schema: Some("a.b".into()), table: "say \"once\"".into(), schema_of_marks: None };
        let statements = Statements::new(&name, true);
        let [records, marks, open] = &statements.tables[..] else { panic!("{:?}", statements.tables) };
        assert!(
            records.schema.ends_with(
                "CREATE INDEX IF NOT EXISTS \"say \"\"once\"\"_purge\" ON \"a.b\".\"say \"\"once\"\"\" (purge_day);\n"
            ),
            "{}",
            records.schema
        );
        assert!(
            marks.schema.ends_with(
                "CREATE INDEX IF NOT EXISTS \"say \"\"once\"\"_marks_purge\" ON \"a.b\".\"say \"\"once\"\"_marks\" (purge_day);\n"
            ),
            "{}",
            marks.schema
        );
        assert!(
            open.schema.starts_with(
                "CREATE INDEX IF NOT EXISTS \"say \"\"once\"\"_open\" ON \"a.b\".\"say \"\"once\"\"\" (claimed_at, key_hash, scope)"
            ),
            "{}",
            open.schema
        );
        assert!(statements.claim.contains("INSERT INTO \"a.b\".\"say \"\"once\"\"\" AS r"));
        let of_the_default = Statements::new(&TableName::default(), false).schema.replace('"', "");
        let files = [include_str!("schema.sql"), include_str!("schema_marks.sql")].concat();
        assert_eq!(of_the_default, files.replace('"', ""));
    }

    #[test]
    fn the_page_has_the_statements_of_the_tables() {
        let page = include_str!("../../../docs/postgresql.md");
        for table in [include_str!("schema.sql"), include_str!("schema_marks.sql")] {
            assert!(page.contains(table), "docs/postgresql.md lacks {table}");
        }
    }

    #[test]
    fn a_name_that_holds_a_placeholder_stays_as_it_is() {
        let name = TableName { table: "once_marks of once_records".into(), ..TableName::default() };
        let write = Statements::new(&name, false).write_mark;
        assert!(write.contains("UPDATE \"once_marks of once_records_marks\" SET"), "{write}");
        assert!(write.contains("SELECT FROM \"once_marks of once_records\" WHERE"), "{write}");
    }

    #[test]
    fn names_that_postgresql_would_change_are_refused() {
        for table in ["", "a\0b", &"x".repeat(52)] {
            assert!(TableName { table: table.to_owned(), ..TableName::default() }.check().is_err(), "{table:?}");
        }
        assert!(TableName { schema: Some(String::new()), ..TableName::default() }.check().is_err());
        assert!(TableName { table: "x".repeat(51), ..TableName::default() }.check().is_ok());
    }
}
