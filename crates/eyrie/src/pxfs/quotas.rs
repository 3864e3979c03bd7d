//! Quotas: reading usage and limits, and setting limits.

use eyrie_engine::access;
use eyrie_engine::op::XATTR_SIZE_MAX;
use eyrie_engine::quota::{QUOTA_XATTR, QuotaReport, QuotaTable};
use eyrie_engine::{AttributeChange, Engine, Op};

use super::{AsUser, CallResult, Handle, Pxfs};
use crate::posix::{PosixProjects, Target};
use crate::{Result, XattrMode};

impl<E: Engine> Pxfs<E> {
    /// Returns the usage and the limits of the accounts that the user may see: those of this user and of the
    /// user's groups, or all accounts for a user with the capability `SYS_ADMIN`. `None` if the volume has no
    /// quotas.
    ///
    /// ```
    /// # use eyrie::*; fn f(files: &Files) -> Result<()> {
    /// for report in files.quotas()?.into_iter().flatten() {
    ///     println!("{:?}: {} bytes", report.id, report.usage.bytes);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EIO` if the volume is damaged.
    pub fn quotas(&self) -> Result<Option<Vec<QuotaReport>>> {
        self.as_user().call("read quotas", |user| {
            let mut reports = user.engine().quotas()?;
            if let Some(reports) = &mut reports {
                reports.retain(|report| access::sees_quota(user.credentials(), report.id));
            }
            Ok(reports)
        })
    }

    /// Returns all limits of the volume; `None` if it has no quotas.
    ///
    /// # Errors
    /// `EPERM` without the capability `SYS_ADMIN`. `EIO` if the volume is damaged.
    pub fn quota_table(&self) -> Result<Option<QuotaTable>> {
        self.as_user().call("read quotas", |user| {
            access::check_limits(user.credentials())?;
            let mut value = vec![0; XATTR_SIZE_MAX];
            let size = user.engine().xattr(user.engine().root(), QUOTA_XATTR, &mut value)?;
            Ok(size.map(|size| QuotaTable::decode(&value[..size])).transpose()?)
        })
    }

    /// Sets all limits of the volume, which has quotas from then on. `None` removes the limits, and ends the
    /// counting of usage.
    ///
    /// ```
    /// # use eyrie::*; fn f(files: &Files) -> Result<()> {
    /// let mut table = files.quota_table()?.unwrap_or_default();
    /// table.bytes_grace = 24 * 60 * 60; // a day above the soft limit
    /// files.set_quota_table(Some(&table))
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EPERM` without the capability `SYS_ADMIN`. `E2BIG` for more than 1,170 accounts. `ENODATA` if `table`
    /// is `None` and the volume has no quotas.
    pub fn set_quota_table(&self, table: Option<&QuotaTable>) -> Result<()> {
        self.as_user().call("set quotas", |user| user.set_quota_table(table))
    }
}

impl<E: Engine> PosixProjects for Pxfs<E> {
    fn project(&self, file: Target<'_, Handle>) -> Result<u32> {
        self.as_user().call("read project id", |user| {
            let id = user.usable_target(file)?;
            Ok(user.engine().project(id)?)
        })
    }

    fn set_project(&self, file: Target<'_, Handle>, project: u32) -> Result<()> {
        self.as_user().call("set project id", |user| {
            let id = user.usable_target(file)?;
            access::check_set_project(user.credentials())?;
            let change = AttributeChange { project: Some(project), ..AttributeChange::default() };
            user.apply(&Op::SetAttributes { id, change, time: user.now([id]) })?;
            Ok(())
        })
    }
}

impl<E: Engine> AsUser<'_, E> {
    fn set_quota_table(&self, table: Option<&QuotaTable>) -> CallResult<()> {
        access::check_limits(self.credentials())?;
        let root = self.engine().root();
        let (id, name, time) = (root, QUOTA_XATTR, self.now([root]));
        match table {
            Some(table) => {
                let value = &table.encode();
                self.apply(&Op::SetXattr { id, name, value, mode: XattrMode::Set, time })?;
            }
            None => {
                self.apply(&Op::RemoveXattr { id, name, time })?;
            }
        }
        Ok(())
    }
}
