//! The catalogue of the rules. `docs/rules.md` has the same sentences. The rules of threads and of processes
//! follow in `parallel`.

use super::entry::{Area, On, RuleEntry, rules};
use super::parallel::with_parallel_rules;

with_parallel_rules! {
    Medium in "eyrie-medium/src/pmem.rs" {
        LineIsWrittenBack "line-is-written-back" on Memory, "write-backs":
            "Every line that a store touches is written back to persistent memory.",
            "if a store begins in the middle of a line, its last line may stay in the caches";
        StreamedEndIsWrittenBack "streamed-end-is-written-back" on Memory, "write-backs":
            "The bytes after the last whole line of a streamed store are written back.",
            "these bytes stay in the caches";
        FenceFollowsWriteBacks "fence-follows-write-backs" on Memory, "write-backs":
            "A barrier waits until the lines that its thread wrote back are durable.",
            "the barrier makes no fence";
    }
    Medium in "eyrie-medium/src/order.rs" {
        LineEndsWithItsCommit "line-ends-with-its-commit" on Memory, "one call":
            "The words of a committing line are stored in order, and the word that commits is the last.",
            "they are stored in reverse order: the selector before its copy";
    }
    Journal in "eyrie-medium/src/paged/page.rs" {
        DirtyLinesCoverStores "dirty-lines-cover-stores" on Disk, "one call":
            "A store to a page of a disk marks every line that it touches as changed.",
            "the last of several lines is not marked";
    }
    Journal in "eyrie-medium/src/paged/journal/anchor.rs" {
        NewJournalNameIsFlushed "new-journal-name-is-flushed" on Disk, "journals that start over":
            "The new name of a journal is durable before the first record under that name is written.",
            "the new name is not flushed";
    }
    Journal in "eyrie-medium/src/paged/journal/record.rs" {
        RecordChecksumCoversAll "record-checksum-covers-all" on Disk, "journals that start over":
            "The checksum of a record covers all of its bytes.",
            "it covers the first sector only";
    }
    Journal in "eyrie-medium/src/paged/journal/replay.rs" {
        FoundRecordsAreFlushed "found-records-are-flushed" on Disk, "killed processes":
            "The journal records that an open finds are durable before the open changes a page by them.",
            "they are not flushed: a killed process may have left them in the host's cache";
        NextFreshPagesAreLeft "next-fresh-pages-are-left" on Disk, "a full journal":
            "The replay of a full journal leaves out the pages that the next record lists as fresh.",
            "older lines of these pages are replayed over them";
        OverflowIsChecked "overflow-is-checked" on Disk, "more than the journal":
            "A record that overflows counts only if its overflow pages match their checksums.",
            "their checksums are not compared";
        RecordsHaveTheJournalsName "records-have-the-journals-name" on Disk, "journals that start over":
            "A record counts only if it has the present name of its journal.",
            "records from before the journal started over count, too";
        ReplayGoesToTheLastRecord "replay-goes-to-the-last-record" on Disk, "one call":
            "A replay includes every record up to the last one that is whole.",
            "it leaves out the last record";
        FreshPagesAreChecked "fresh-pages-are-checked" on Disk, "reuse on a disk":
            "The last record counts only if every fresh page that it lists is whole.",
            "the checksum of the first such page is not compared";
        ReplayStoresChecksums "replay-stores-checksums" on Disk, "one call":
            "A replay stores the checksums of all pages that the records list.",
            "it leaves the old checksums";
        LaterRecordWins "later-record-wins" on Disk, "journals that start over":
            "If several records have a line, replay takes the line from the last of them.",
            "replay takes the line from the first of them";
        FreshPageEndsOlderLines "fresh-page-ends-older-lines" on Disk, "reuse on a disk":
            "If a record lists a page as fresh, replay ignores the lines of that page in earlier records.",
            "replay writes these lines over the page";
    }
    Journal in "eyrie-medium/src/paged/drain.rs" {
        UsedPageGoesByTheJournal "used-page-goes-by-the-journal" on Disk, "one call":
            "A change of a page that the last durable cut uses goes to the journal first.",
            "the page is written to its place like a fresh page";
        CheckpointTakesEveryPage "checkpoint-takes-every-page" on Disk, "journals that start over":
            "Before the journal starts over, each page with lines in the journal is written to its place.",
            "the first such page is left out";
        LoggedPageIsMarked "logged-page-is-marked" on Disk, "journals that start over":
            "A page with lines in the journal stays in memory until its bytes are in its place.",
            "the page lacks the mark that keeps it in memory";
        ShadowIsOfItsCut "shadow-is-of-its-cut" on Disk, "two threads on a disk":
            "If a page changes before the drain takes it, the drain writes the page as it was at the cut.",
            "the drain writes the bytes that the page has when it takes the page";
        FreeingCutHasARecord "freeing-cut-has-a-record" on Disk, "several syncs":
            "A cut without changes gets a record if the last record lists fresh pages.",
            "it gets no record";
        FullJournalIsReplayed "full-journal-is-replayed" on Disk, "a full journal":
            "A journal without room for the next record is replayed before it starts over.",
            "it starts over without a replay";
        CheckpointIsDurableBeforeRestart "checkpoint-is-durable-before-restart"
            on Disk, "journals that start over":
            "The pages of a checkpoint are durable before the journal gets a new name.",
            "the journal gets the new name first";
        ChecksumsBeforeRestart "checksums-before-restart" on Disk, "reuse on a disk":
            "The checksums of the pages in a journal are on the disk before the journal gets a new name.",
            "they are not written";
        FreshPageIsRecordedWhole "fresh-page-is-recorded-whole" on Disk, "reuse on a disk":
            "With checksums, a fresh page that goes to the journal is recorded with all of its lines.",
            "only its changed lines are recorded";
        JournalNameIsNewAfterRestart "journal-name-is-new-after-restart" on Disk, "journals that start over":
            "A journal that starts over gets a new name.",
            "it keeps the old name";
    }
    Journal in "eyrie-medium/src/paged/checksums.rs" {
        ZeroEntryMatchesNothing "zero-entry-matches-nothing" on Disk, "lost pages":
            "No page matches the entry 0, which a lost checksum page has for each of its pages.",
            "a page of zeros matches it";
        UnreadableEntriesAreWrittenAnew "unreadable-entries-are-written-anew" on Disk, "lost pages":
            "A checksum page that cannot be read is written with the entries that are known.",
            "the drain fails, and the volume becomes read-only";
    }
    Journal in "eyrie-medium/src/paged/change.rs" {
        ChangedPageIsPreserved "changed-page-is-preserved" on Disk, "two threads on a disk":
            "If a page of a cut changes again before the drain has taken it, the page is copied first.",
            "the page becomes part of the next cut without a copy";
    }
    Journal in "eyrie-medium/src/paged/allocate.rs" {
        FreedPageWaitsForItsCut "freed-page-waits-for-its-cut" on Disk, "reuse on a disk":
            "A page that a durable cut uses is allocated again only after a cut without it is durable.",
            "the page is allocated one cut early";
        ChangedPageIsNotFresh "changed-page-is-not-fresh" on Disk, "reuse on a disk":
            "A freed page is allocated again in the same cut only if it was also allocated in that cut.",
            "a page that was only changed in that cut is allocated again, too";
    }
    Journal in "eyrie-medium/src/paged/gate.rs" {
        OpStaysWithinItsRoom "op-stays-within-its-room" on Disk, "more than the journal":
            "An Op changes no more lines than it has room for in the journal.",
            "the Op goes on without room";
        CutWaitsForOps "cut-waits-for-ops" on Disk, "two threads on a disk":
            "A drain makes its cut while no Op is in progress.",
            "the drain does not wait for Ops in progress";
    }
    Redo in "eyrie-engine/src/transaction/redo.rs" {
        RedoWordsBeforeTheirRecord "redo-words-before-their-record" on Memory, "one call":
            "The words of a redo record persist before the word that commits it.",
            "the words are stored after the word that commits it";
        RedoRecordBeforeItsEffect "redo-record-before-its-effect" on Memory, "one call":
            "A redo record is durable before the first of its words is stored in its place.",
            "its words are stored in their places first";
        RedoRecordIsClearedAfterItsEffect "redo-record-is-cleared-after-its-effect" on Memory, "one call":
            "The words of a redo record are durable in their places before that record is cleared.",
            "the redo record is cleared first";
        RedoRecordIsClearedUnderItsLocks "redo-record-is-cleared-under-its-locks" on Memory, "two calls":
            "A redo record is cleared durably before the Op releases the locks of its objects.",
            "the redo record stays until its slot is used again";
        RedoChecksumCoversOverflow "redo-checksum-covers-overflow" on Memory, "damage":
            "The checksum of a redo record also covers the words that are in an extent outside its slot.",
            "it covers only the pointer to that extent";
        EveryRedoSlotIsReplayed "every-redo-slot-is-replayed" on Memory, "redo slots":
            "Recovery replays the redo records of all sixteen redo slots.",
            "it replays the first eight slots only";
        ReplayedRecordIsClearedLast "replayed-record-is-cleared-last" on Memory, "one call":
            "Recovery makes the words of a redo record durable before it clears the redo record.",
            "it clears the redo record first";
        EveryRedoWordIsReplayed "every-redo-word-is-replayed" on Memory, "one call":
            "Recovery stores every word of a redo record.",
            "it leaves out the last word";
    }
    Transactions in "eyrie-medium/src/epoch.rs" {
        RetiredStorageWaitsForReaders "retired-storage-waits-for-readers" on Both, "readers":
            "Retired storage is allocated again only after every reader that could see it has unpinned.",
            "the storage is allocated one epoch early";
    }
    Transactions in "eyrie-engine/src/object/header/update.rs" {
        HeaderBeforeItsEntry "header-before-its-entry" on Memory, "one call":
            "The header of a new object persists before the entry that names it.",
            "the header is stored after the entry";
        DeadHotCopyIsWritten "dead-hot-copy-is-written" on Memory, "one call":
            "A change of root, size or modification time goes to the hot copy that is not current.",
            "the change goes to the current copy";
        DeadColdCopyIsWritten "dead-cold-copy-is-written" on Memory, "one call":
            "A change of attributes goes to the cold copy that is not current.",
            "the change goes to the current copy";
        ColdCopyBeforeItsSelector "cold-copy-before-its-selector" on Memory, "one call":
            "A cold copy persists before the selector names it.",
            "the copy is stored after the selector";
    }
    Transactions in "eyrie-engine/src/object/mfile/fresh.rs" {
        BytesBeforeTheirPointer "bytes-before-their-pointer" on Memory, "one call":
            "The bytes of a new extent persist before the pointer to it.",
            "the bytes are stored after the pointer";
    }
    Transactions in "eyrie-engine/src/object/mfile/tree.rs" {
        NodeBeforeItsPointer "node-before-its-pointer" on Memory, "one call":
            "A node of a file's tree persists before the pointer to it.",
            "the node is stored after the pointer";
    }
    Transactions in "eyrie-engine/src/object/xattr/update.rs" {
        AttributesBeforeTheirPointer "attributes-before-their-pointer" on Memory, "one call":
            "A block of extended attributes persists before the pointer to it.",
            "the block is stored after the pointer";
    }
    Transactions in "eyrie-engine/src/scm/features.rs" {
        FeatureBeforeTheFirstAcl "feature-before-the-first-acl" on Memory, "features":
            "The superblock names the feature of ACLs before the first object gets an ACL.",
            "the superblock names it afterwards";
        FeatureBeforeTheFirstFlag "feature-before-the-first-flag" on Memory, "features":
            "The superblock names the feature of inode flags before the first object gets a flag.",
            "the superblock names it afterwards";
        FeatureBeforeStoragePastTheEnd "feature-before-storage-past-the-end" on Memory, "features":
            "The superblock names the feature of storage past the end of a file before its first use.",
            "the superblock names it afterwards";
        FeatureBeforeTheFirstClone "feature-before-the-first-clone" on Memory, "features":
            "The superblock names the feature of shared extents before the first clone.",
            "the superblock names it afterwards";
        FeatureBeforeTheFirstCapability "feature-before-the-first-capability" on Memory, "features":
            "The superblock names the feature of `security.capability` before the first file gets one.",
            "the superblock names it afterwards";
        FeatureBeforeTheFirstQuota "feature-before-the-first-quota" on Memory, "features":
            "The superblock names the feature of quotas before the first limit or project id is stored.",
            "the superblock names it afterwards";
    }
    Transactions in "eyrie-engine/src/scm/acl.rs" {
        NewObjectIsOfItsTree "new-object-is-of-its-tree" on Both, "features":
            "The commit of a new object gives it the project id of its directory.",
            "the new object gets no project id";
    }
    Transactions in "eyrie-engine/src/scm/attributes.rs" {
        NotedAccessIsCommitted "noted-access-is-committed" on Both, "features":
            "The Op that notes an access commits the new access time.",
            "the new access time is dropped";
    }
    Transactions in "eyrie-engine/src/scm/create.rs" {
        FirstNameEndsTheMark "first-name-ends-the-mark" on Memory, "one call":
            "The commit that gives a file its first name also clears the mark that it has no name.",
            "the mark ends after the commit";
    }
    Transactions in "eyrie-engine/src/scm/write.rs" {
        CapabilityGoesWithTheBytes "capability-goes-with-the-bytes" on Memory, "growth":
            "The commit that changes the bytes of a file also removes its `security.capability`.",
            "a write removes it by a later commit";
    }
    Transactions in "eyrie-engine/src/scm/rename.rs" {
        MoveLocksBothDirectories "move-locks-both-directories" on Memory, "two threads in one directory":
            "A rename holds the locks of both entries until its commit is durable.",
            "it holds the lock of the first entry only";
        RenameLeavesItsWhiteout "rename-leaves-its-whiteout" on Both, "features":
            "The commit of a rename with a whiteout makes the old name lead to the whiteout.",
            "the commit removes the old name";
    }
    Allocation in "eyrie-engine/src/space/headers.rs" {
        ChunkIsClearedBeforeItsBit "chunk-is-cleared-before-its-bit" on Memory, "reuse":
            "The zeros of a new header chunk are durable before its bit in the bitmap of chunks is set.",
            "the bit is set before the zeros are durable";
    }
    Allocation in "eyrie-engine/src/space/central.rs" {
        GroupIsInUseBeforeItIsUsed "group-is-in-use-before-it-is-used" on Both, "reuse":
            "The number of groups in use includes a group before storage of that group is allocated.",
            "it includes a group only when the next group is taken";
    }
    Allocation in "eyrie-engine/src/volume/generation.rs" {
        GenerationsAreLeasedFirst "generations-are-leased-first" on Both, "one call":
            "A generation is assigned only after the durable limit of generations is above it.",
            "the limit is not raised";
    }
    Allocation in "eyrie-engine/src/space/slab.rs" {
        SlabPageIsFreeWhenEmpty "slab-page-is-free-when-empty" on Both, "reuse":
            "A page of small extents becomes free when the last extent in it becomes free.",
            "the page becomes free while one extent is still in use";
    }
    Allocation in "eyrie-engine/src/space/shared.rs" {
        LastPointerFreesThePage "last-pointer-frees-the-page" on Both, "clones":
            "A page to which several pointers lead becomes free when a commit has dropped the last of them.",
            "it becomes free with the first of them";
    }
    Allocation in "eyrie-engine/src/object/mfile/copy.rs" {
        OnlyUnusedPagesAreRetired "only-unused-pages-are-retired" on Both, "reuse":
            "When an extent becomes a tree, only its pages behind the last byte of the file are given back.",
            "the page with the last byte is given back, too";
    }
    Allocation in "eyrie-engine/src/scm/opens.rs" {
        OpenFileOutlivesItsNames "open-file-outlives-its-names" on Both, "readers":
            "The storage of a file that has no name any more is given back after its last close.",
            "the storage is given back when its last name is removed";
        CloseFreesOpenOrphans "close-frees-open-orphans" on Both, "closing":
            "A close frees the open files that have no name before it saves the allocator.",
            "the allocator is saved with their storage in use";
    }
    Collections in "eyrie-engine/src/object/collection/update.rs" {
        FurtherPageBeforeItsLink "further-page-before-its-link" on Memory, "long names":
            "A further page of a bucket persists before the link to it.",
            "the page is stored after the link";
    }
    Collections in "eyrie-engine/src/object/collection/page.rs" {
        RecordBeforeItsSlot "record-before-its-slot" on Memory, "one call":
            "The record with the name of an entry persists before the slot of the entry becomes live.",
            "the record is stored after the slot";
        SpilledBitBeforeItsEntry "spilled-bit-before-its-entry" on Memory, "long names":
            "An entry outside its preferred line is live only after that line names the entry's line.",
            "the preferred line names the entry's line afterwards";
        InventoryBeforeItsEntry "inventory-before-its-entry" on Memory, "one call":
            "The inventory of a bucket page includes an entry before that entry is live.",
            "the inventory includes the entry only after it is live";
        DeadStampIsWritten "dead-stamp-is-written" on Memory, "one call":
            "The time of a change goes to the stamp of the page that is not current.",
            "the time goes to the current stamp";
    }
    Collections in "eyrie-engine/src/object/collection/grow.rs" {
        WiderTableHasEverySegment "wider-table-has-every-segment" on Both, "a wide directory":
            "A larger table of a collection has every segment of the smaller table that it replaces.",
            "the last segment is missing";
        NewBucketBeforeItsCount "new-bucket-before-its-count" on Memory, "growth":
            "The pages of a new bucket persist before the number of buckets includes that bucket.",
            "the first of these pages is stored after that number";
        SplitTakesEveryPage "split-takes-every-page" on Both, "long names":
            "A split moves the entries of every page of the old bucket.",
            "it moves the entries of the first page only";
        SweepKeepsWhatCounts "sweep-keeps-what-counts" on Both, "growth":
            "After a split, the cleaning of the old bucket keeps every entry that still belongs to it.",
            "it drops the last such entry";
    }
    Collections in "eyrie-engine/src/object/collection/shrink.rs" {
        MergeTakesEveryPage "merge-takes-every-page" on Both, "long names":
            "A merge moves the entries of every page of both buckets.",
            "it moves the entries of the first pages only";
        SegmentLeavesAfterItsBuckets "segment-leaves-after-its-buckets" on Both, "growth":
            "A collection gives up a segment only after all buckets of the segment have merged.",
            "it gives up the segment of its last bucket, too";
    }
    Files in "eyrie-engine/src/object/mfile/copy.rs" {
        VisiblePageIsCopied "visible-page-is-copied" on Memory, "one call":
            "A change of more than one visible word of a page is made in a copy of the page.",
            "the page is changed in place";
    }
    Files in "eyrie-engine/src/object/mfile/append.rs" {
        GapBecomesZeros "gap-becomes-zeros" on Both, "reuse":
            "The bytes between the end of a file and a write behind it become zeros.",
            "they keep the old contents of their storage";
    }
    Files in "eyrie-engine/src/object/mfile/fill.rs" {
        SlotsPastTheEndBecomeHoles "slots-past-the-end-become-holes" on Both, "reuse":
            "A file gets storage past its end only after all slots of its nodes past the end are holes.",
            "the slots keep their old pointers";
    }
    Files in "eyrie-engine/src/object/mfile/write.rs" {
        SealedBytesStay "sealed-bytes-stay" on Both, "readers":
            "The bytes of a sealed file are never changed in place.",
            "one word of them is changed in place";
        SharedBytesStay "shared-bytes-stay" on Both, "clones":
            "A word of a page to which other pointers may lead is never changed in place.",
            "it is changed in place, and so in all files that share the page";
    }
    Files in "eyrie-engine/src/object/mfile/own.rs" {
        SharedTailIsCopied "shared-tail-is-copied" on Both, "clones":
            "A file gets a last page of its own before bytes are stored behind its end.",
            "the bytes go to the page that another file has, too";
    }
    Files in "eyrie-engine/src/object/mfile/clone.rs" {
        SharedBitsBeforeTheClone "shared-bits-before-the-clone" on Memory, "clones":
            "The shared bits in the pointers of the source persist before the commit of the clone.",
            "they persist after it";
    }
    Files in "eyrie-engine/src/scm/view.rs" {
        OnlySealedBytesAreLent "only-sealed-bytes-are-lent" on Both, "readers":
            "The bytes of a file are lent in place only after the file is sealed.",
            "the bytes of every file are lent";
    }
    Files in "eyrie-engine/src/scm/write.rs" {
        BytesBeforeTheirSize "bytes-before-their-size" on Memory, "one call":
            "The bytes of a write past the end of a file are durable before its size includes them.",
            "the new size is stored first";
    }
    Recovery in "eyrie-engine/src/recovery.rs" {
        RecoveryVisitsEveryBucket "recovery-visits-every-bucket" on Both, "growth":
            "Recovery visits the objects of every bucket of a directory.",
            "it leaves out the last bucket of each part of a directory";
    }
    Recovery in "eyrie-engine/src/object/visit.rs" {
        RecoveryVisitsAttributes "recovery-visits-attributes" on Both, "one call":
            "Recovery marks the storage of extended attributes as used.",
            "that storage counts as free";
        RecoveryVisitsEveryHeight "recovery-visits-every-height" on Both, "growth":
            "Recovery marks the storage of files as used, whatever the height of their trees.",
            "the storage of trees of two levels and more counts as free";
    }
    Recovery in "eyrie-engine/src/object/collection/check.rs" {
        RecoveryVisitsFurtherPages "recovery-visits-further-pages" on Both, "long names":
            "Recovery marks every page of a bucket as used.",
            "the pages after the first count as free";
    }
    Volumes in "eyrie-engine/src/volume/save.rs" {
        SavedAllocatorBeforeItsMark "saved-allocator-before-its-mark" on Memory, "closing":
            "The saved allocator persists before the clean mark that makes it valid.",
            "the mark is stored first";
        CleanMarkIsClearedByOpening "clean-mark-is-cleared-by-opening" on Both, "one call":
            "An open clears the clean mark before any other change, except that of the number of owners.",
            "the mark stays";
    }
    Volumes in "eyrie-engine/src/space/saved.rs" {
        SavedChecksumCoversAll "saved-checksum-covers-all" on Memory, "damage":
            "The checksum of the saved allocator covers all of its bytes.",
            "it covers the first 128 bytes only";
        CountsAreSaved "counts-are-saved" on Both, "clones":
            "A saved allocator has the counts of pointers to shared pages.",
            "it has none, so the next owner frees a shared page too early";
    }
    Volumes in "eyrie-engine/src/volume/open.rs" {
        FoundStoresAreFlushed "found-stores-are-flushed" on Memory, "killed processes":
            "If a volume was not closed, its open makes the stores that it finds durable before it makes any \
             change but that of the number of owners.",
            "these stores are not flushed: a killed process may have left them in the caches";
        NewTablesAreRecorded "new-tables-are-recorded" on Disk, "reuse on a disk":
            "The tables of a new volume with checksums get checksums before its superblock is written.",
            "tables that never changed have no checksums";
    }
    Volumes in "eyrie-engine/src/tables/superblock.rs" {
        SuperblockCopiesAreOrdered "superblock-copies-are-ordered" on Memory, "resizing":
            "One copy of the superblock is durable before the other is written.",
            "no barrier is between the two writes";
    }
    Volumes in "eyrie-engine/src/volume/resize.rs" {
        FileIsLongEnoughBeforeItsSize "file-is-long-enough-before-its-size" on Memory, "resizing":
            "The file of a volume is long enough before the superblock has the new, larger size.",
            "the superblock has the new size first";
        GroupsLeaveUseBeforeTheEnd "groups-leave-use-before-the-end" on Memory, "resizing":
            "Groups behind the new end are taken out of use before the superblock has the smaller size.",
            "the superblock has the new size first";
    }
}
