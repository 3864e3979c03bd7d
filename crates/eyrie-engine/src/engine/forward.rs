//! Macros that define calls of an engine by calls of another object.

/// Defines the calls of [`Engine`](crate::Engine) that are one read of a
/// [`VolumeView`](crate::volume::VolumeView). The engine has a method `$reading` that runs such a read of an
/// object and checks its result, and a method `$reading_bytes` that does the same for a read of the bytes,
/// the size or the names of an object.
#[macro_export]
macro_rules! delegate_reads {
    ($reading:ident, $reading_bytes:ident) => {
        fn birth(&self, id: $crate::ObjectId) -> $crate::Result<$crate::Birth> {
            self.$reading(id, |view| view.read_birth(id))
        }

        fn inode_flags(&self, id: $crate::ObjectId) -> $crate::Result<$crate::InodeFlags> {
            self.$reading(id, |view| view.read_inode_flags(id))
        }

        fn project(&self, id: $crate::ObjectId) -> $crate::Result<u32> {
            self.$reading(id, |view| view.read_project(id))
        }

        fn parent_of(&self, dir: $crate::ObjectId) -> $crate::Result<Option<$crate::ObjectId>> {
            self.$reading(dir, |view| view.read_parent(dir))
        }

        fn is_removed(&self, id: $crate::ObjectId) -> $crate::Result<bool> {
            self.$reading_bytes(id, |view| view.read_is_removed(id))
        }

        #[inline]
        fn read(&self, id: $crate::ObjectId, offset: u64, out: &mut [u8]) -> $crate::Result<usize> {
            self.$reading_bytes(id, |view| view.read_data(id, offset, out))
        }

        fn seek(&self, id: $crate::ObjectId, offset: u64, hole: bool) -> $crate::Result<Option<u64>> {
            self.$reading_bytes(id, |view| view.read_seek(id, offset, hole))
        }

        fn has_storage(&self, id: $crate::ObjectId) -> $crate::Result<bool> {
            self.$reading_bytes(id, |view| view.read_has_storage(id))
        }

        fn xattr(&self, id: $crate::ObjectId, name: &[u8], out: &mut [u8]) -> $crate::Result<Option<usize>> {
            self.$reading(id, |view| view.read_xattr(id, name, out))
        }
    };
}

/// Defines the named calls of [`Engine`](crate::Engine) as calls of another engine. The engine has a method
/// `$inner` that returns the other engine. Tests wrap an engine to change a few of its calls. Calls that are
/// not named have the defaults of the trait, not those of the other engine.
#[doc(hidden)]
#[macro_export]
macro_rules! forward_calls {
    ($inner:ident: $($call:ident)*) => { $($crate::forward_calls!(@$call $inner);)* };
    (@root $inner:ident) => {
        fn root(&self) -> $crate::ObjectId {
            $crate::Engine::root(self.$inner())
        }
    };
    (@instance $inner:ident) => {
        fn instance(&self) -> u32 {
            $crate::Engine::instance(self.$inner())
        }
    };
    (@lookup $inner:ident) => {
        fn lookup(&self, dir: $crate::ObjectId, name: &[u8]) -> $crate::Result<Option<$crate::ObjectId>> {
            $crate::Engine::lookup(self.$inner(), dir, name)
        }
    };
    (@attributes $inner:ident) => {
        fn attributes(&self, id: $crate::ObjectId) -> $crate::Result<$crate::Attributes> {
            $crate::Engine::attributes(self.$inner(), id)
        }
    };
    (@birth $inner:ident) => {
        fn birth(&self, id: $crate::ObjectId) -> $crate::Result<$crate::Birth> {
            $crate::Engine::birth(self.$inner(), id)
        }
    };
    (@owner $inner:ident) => {
        fn owner(&self, id: $crate::ObjectId) -> $crate::Result<$crate::Owner> {
            $crate::Engine::owner(self.$inner(), id)
        }
    };
    (@inode_flags $inner:ident) => {
        fn inode_flags(&self, id: $crate::ObjectId) -> $crate::Result<$crate::InodeFlags> {
            $crate::Engine::inode_flags(self.$inner(), id)
        }
    };
    (@project $inner:ident) => {
        fn project(&self, id: $crate::ObjectId) -> $crate::Result<u32> {
            $crate::Engine::project(self.$inner(), id)
        }
    };
    (@quotas $inner:ident) => {
        fn quotas(&self) -> $crate::Result<Option<Vec<$crate::quota::QuotaReport>>> {
            $crate::Engine::quotas(self.$inner())
        }
    };
    (@read $inner:ident) => {
        fn read(&self, id: $crate::ObjectId, offset: u64, out: &mut [u8]) -> $crate::Result<usize> {
            $crate::Engine::read(self.$inner(), id, offset, out)
        }
    };
    (@version $inner:ident) => {
        fn version(&self, id: $crate::ObjectId) -> $crate::Result<$crate::Version> {
            $crate::Engine::version(self.$inner(), id)
        }
    };
    (@seek $inner:ident) => {
        fn seek(&self, id: $crate::ObjectId, offset: u64, hole: bool) -> $crate::Result<Option<u64>> {
            $crate::Engine::seek(self.$inner(), id, offset, hole)
        }
    };
    (@has_storage $inner:ident) => {
        fn has_storage(&self, id: $crate::ObjectId) -> $crate::Result<bool> {
            $crate::Engine::has_storage(self.$inner(), id)
        }
    };
    (@xattr $inner:ident) => {
        fn xattr(&self, id: $crate::ObjectId, name: &[u8], out: &mut [u8]) -> $crate::Result<Option<usize>> {
            $crate::Engine::xattr(self.$inner(), id, name, out)
        }
    };
    (@xattr_names $inner:ident) => {
        fn xattr_names(&self, id: $crate::ObjectId, visit: &mut dyn FnMut(&[u8])) -> $crate::Result<()> {
            $crate::Engine::xattr_names(self.$inner(), id, visit)
        }
    };
    (@list $inner:ident) => {
        fn list(
            &self,
            dir: $crate::ObjectId,
            cookie: u64,
            visit: &mut dyn FnMut($crate::ListedEntry<'_>) -> bool,
        ) -> $crate::Result<()> {
            $crate::Engine::list(self.$inner(), dir, cookie, visit)
        }
    };
    (@open $inner:ident) => {
        fn open(&self, id: $crate::ObjectId) -> $crate::Result<()> {
            $crate::Engine::open(self.$inner(), id)
        }
    };
    (@close $inner:ident) => {
        fn close(&self, id: $crate::ObjectId) {
            $crate::Engine::close(self.$inner(), id);
        }
    };
    (@reserve $inner:ident) => {
        fn reserve(&self, kind: $crate::Kind) -> $crate::Result<$crate::ObjectId> {
            $crate::Engine::reserve(self.$inner(), kind)
        }
    };
    (@unreserve $inner:ident) => {
        fn unreserve(&self, id: $crate::ObjectId) {
            $crate::Engine::unreserve(self.$inner(), id);
        }
    };
    (@apply $inner:ident) => {
        fn apply(&self, op: &$crate::Op<'_>) -> $crate::Result<$crate::Applied> {
            $crate::Engine::apply(self.$inner(), op)
        }
    };
    (@reclaim $inner:ident) => {
        fn reclaim(&self) -> bool {
            $crate::Engine::reclaim(self.$inner())
        }
    };
    (@directory_changes $inner:ident) => {
        fn directory_changes(&self) -> u64 {
            $crate::Engine::directory_changes(self.$inner())
        }
    };
    (@wait_for $inner:ident) => {
        fn wait_for(&self, id: $crate::ObjectId) -> $crate::Result<()> {
            $crate::Engine::wait_for(self.$inner(), id)
        }
    };
    (@sync $inner:ident) => {
        fn sync(&self) -> $crate::Result<()> {
            $crate::Engine::sync(self.$inner())
        }
    };
    (@space $inner:ident) => {
        fn space(&self) -> $crate::SpaceUsage {
            $crate::Engine::space(self.$inner())
        }
    };
}
