//! The catalogue of the rules. `docs/rules.md` has the same sentences.

use super::entry::{Area, On, RuleEntry, rules};

rules! {
    Medium in "eyrie-medium/src/pmem.rs" {
        LineIsWrittenBack "line-is-written-back" on Memory, "write-backs":
            "Every line that a store touches is written back to persistent memory.",
            "the last line of a store that begins inside a line stays in the caches";
        StreamedEndIsWrittenBack "streamed-end-is-written-back" on Memory, "write-backs":
            "The bytes after the last whole line of a streamed store are written back.",
            "they stay in the caches";
        FenceFollowsWriteBacks "fence-follows-write-backs" on Memory, "write-backs":
            "A barrier waits for the lines that its thread has written back.",
            "there is no fence";
    }
    Medium in "eyrie-medium/src/order.rs" {
        LineEndsWithItsCommit "line-ends-with-its-commit" on Memory, "one call":
            "The words of a line that commits are stored in order, the committing word last.",
            "they are stored in the opposite order: the selector before its copy";
    }
    Journal in "eyrie-medium/src/paged/page.rs" {
        DirtyLinesCoverStores "dirty-lines-cover-stores" on Disk, "one call":
            "A store to a page of a disk marks every line that it touches as changed.",
            "of several lines the last is not marked";
    }
    Journal in "eyrie-medium/src/paged/journal/anchor.rs" {
        NewJournalNameIsFlushed "new-journal-name-is-flushed" on Disk, "journals that start over":
            "The new name of a journal is durable before its first record is written.",
            "nothing flushes it";
    }
    Journal in "eyrie-medium/src/paged/journal/record.rs" {
        RecordChecksumCoversAll "record-checksum-covers-all" on Disk, "journals that start over":
            "The checksum of a record covers all of its bytes.",
            "it covers the first sector";
    }
    Journal in "eyrie-medium/src/paged/journal/replay.rs" {
        FoundRecordsAreFlushed "found-records-are-flushed" on Disk, "killed processes":
            "The records that opening a volume finds are durable before a page is changed because of them.",
            "nothing flushes them: a killed process may have left them in the host's cache";
        NextFreshPagesAreLeft "next-fresh-pages-are-left" on Disk, "a full journal":
            "A full journal is replayed without the pages that the next record lists as fresh.",
            "their older lines are replayed over them";
        RecordsHaveTheJournalsName "records-have-the-journals-name" on Disk, "journals that start over":
            "A record counts only if it has the name that its journal has now.",
            "records of an older life of the journal count";
        ReplayGoesToTheLastRecord "replay-goes-to-the-last-record" on Disk, "one call":
            "A replay goes on to the last record that is whole.",
            "it stops one record early";
        FreshPagesAreChecked "fresh-pages-are-checked" on Disk, "reuse on a disk":
            "The last record counts only if every fresh page that it lists is whole.",
            "the first page of the list is not compared";
        LaterRecordWins "later-record-wins" on Disk, "journals that start over":
            "A line that several records have is taken from the last of them.",
            "it is taken from the first";
        FreshPageEndsOlderLines "fresh-page-ends-older-lines" on Disk, "reuse on a disk":
            "A record that lists a page as fresh ends the lines that earlier records have of it.",
            "the earlier lines are replayed over the page";
    }
    Journal in "eyrie-medium/src/paged/drain.rs" {
        UsedPageGoesByTheJournal "used-page-goes-by-the-journal" on Disk, "one call":
            "A change of a page that the last durable cut uses goes to the journal first.",
            "it is written to its place like a fresh page";
        CheckpointTakesEveryPage "checkpoint-takes-every-page" on Disk, "journals that start over":
            "Before the journal starts over, every page that it has lines of is written to its place.",
            "the first of them is forgotten";
        LoggedPageIsMarked "logged-page-is-marked" on Disk, "journals that start over":
            "A page with lines in the journal is marked: it stays in memory until it is in its place.",
            "the mark is lost";
        ShadowIsOfItsCut "shadow-is-of-its-cut" on Disk, "two threads on a disk":
            "A page that changes before its drain has come to it is written as it was at the cut.",
            "it is written as it is when the drain comes to it";
        FreeingCutHasARecord "freeing-cut-has-a-record" on Disk, "several syncs":
            "A cut without changes gets a record if the last one lists pages that may be reused after it.",
            "it gets none";
        FullJournalIsReplayed "full-journal-is-replayed" on Disk, "a full journal":
            "A journal that has no room for the next record is replayed before it starts over.",
            "it starts over at once";
        CheckpointIsDurableBeforeRestart "checkpoint-is-durable-before-restart"
            on Disk, "journals that start over":
            "The pages of a checkpoint are durable before the journal gets a new name.",
            "the name comes first";
        JournalNameIsNewAfterRestart "journal-name-is-new-after-restart" on Disk, "journals that start over":
            "A journal that starts over gets a new name.",
            "it keeps the old one";
    }
    Journal in "eyrie-medium/src/paged/change.rs" {
        ChangedPageIsPreserved "changed-page-is-preserved" on Disk, "two threads on a disk":
            "A page that belongs to a cut is copied before it changes again, until the drain has taken it.",
            "it becomes part of the next cut";
    }
    Journal in "eyrie-medium/src/paged/allocate.rs" {
        FreedPageWaitsForItsCut "freed-page-waits-for-its-cut" on Disk, "reuse on a disk":
            "A page that a durable cut uses is given out again once the cut in which it is free is durable.",
            "it is given out one cut early";
        ChangedPageIsNotFresh "changed-page-is-not-fresh" on Disk, "reuse on a disk":
            "Only a page that was taken since the last cut is given out again in the same cut.",
            "a page that was merely changed since then is given out again, too";
    }
    Journal in "eyrie-medium/src/paged/gate.rs" {
        CutWaitsForOps "cut-waits-for-ops" on Disk, "two threads on a disk":
            "A cut is made while no Op is under way.",
            "it does not wait for those that are";
    }
    Redo in "eyrie-engine/src/transaction/redo.rs" {
        RedoWordsBeforeTheirRecord "redo-words-before-their-record" on Memory, "one call":
            "The words of a redo record persist before the word that commits it.",
            "they are stored after it";
        RedoRecordBeforeItsEffect "redo-record-before-its-effect" on Memory, "one call":
            "A redo record is durable before the first of its words is stored in its place.",
            "the words are stored first";
        RedoRecordIsClearedAfterItsEffect "redo-record-is-cleared-after-its-effect" on Memory, "one call":
            "The words of a redo record are durable in their places before the record is cleared.",
            "the record is cleared first";
        RedoRecordIsClearedUnderItsLocks "redo-record-is-cleared-under-its-locks" on Memory, "two calls":
            "A redo record is cleared, durably, before the locks of its objects are released.",
            "it stays until the slot is used again";
        RedoChecksumCoversOverflow "redo-checksum-covers-overflow" on Memory, "damage":
            "The checksum of a redo record covers the words that are in an extent of their own.",
            "it covers their place only";
        EveryRedoSlotIsReplayed "every-redo-slot-is-replayed" on Memory, "redo slots":
            "A recovery replays the records of all sixteen slots.",
            "it replays those of the first eight";
        ReplayedRecordIsClearedLast "replayed-record-is-cleared-last" on Memory, "one call":
            "A recovery makes the words of a record durable before it clears the record.",
            "it clears the record first";
        EveryRedoWordIsReplayed "every-redo-word-is-replayed" on Memory, "one call":
            "A recovery stores every word of a record.",
            "it leaves out the last";
    }
    Transactions in "eyrie-medium/src/epoch.rs" {
        RetiredStorageWaitsForReaders "retired-storage-waits-for-readers" on Both, "readers":
            "Retired storage is given out again when every reader that could see it is gone.",
            "it is given out one epoch early";
    }
    Transactions in "eyrie-engine/src/object/header/update.rs" {
        HeaderBeforeItsEntry "header-before-its-entry" on Memory, "one call":
            "The header of a new object persists before the entry that names it.",
            "it is stored after it";
        DeadHotCopyIsWritten "dead-hot-copy-is-written" on Memory, "one call":
            "A change of size, root or modification time is written to the hot copy that does not count.",
            "it is written to the copy that counts";
        DeadColdCopyIsWritten "dead-cold-copy-is-written" on Memory, "one call":
            "A change of attributes is written to the cold copy that does not count.",
            "it is written to the copy that counts";
        ColdCopyBeforeItsSelector "cold-copy-before-its-selector" on Memory, "one call":
            "A cold copy persists before the selector that makes it count.",
            "it is stored after it";
    }
    Transactions in "eyrie-engine/src/object/mfile/fresh.rs" {
        BytesBeforeTheirPointer "bytes-before-their-pointer" on Memory, "one call":
            "The bytes of a new extent persist before the pointer to it.",
            "they are stored after it";
    }
    Transactions in "eyrie-engine/src/object/mfile/tree.rs" {
        NodeBeforeItsPointer "node-before-its-pointer" on Memory, "one call":
            "A node of a file's tree persists before the pointer to it.",
            "it is stored after it";
    }
    Transactions in "eyrie-engine/src/object/xattr/update.rs" {
        AttributesBeforeTheirPointer "attributes-before-their-pointer" on Memory, "one call":
            "A block of extended attributes persists before the pointer to it.",
            "it is stored after it";
    }
    Transactions in "eyrie-engine/src/scm/rename.rs" {
        MoveLocksBothDirectories "move-locks-both-directories" on Memory, "two threads in one directory":
            "A rename holds the locks of both directories until its commit is durable.",
            "it holds the lock of the first only";
    }
    Allocation in "eyrie-engine/src/space/headers.rs" {
        ChunkIsClearedBeforeItsBit "chunk-is-cleared-before-its-bit" on Memory, "reuse":
            "A header chunk is zeros, durably, before its bit is set.",
            "the bit is set first";
    }
    Allocation in "eyrie-engine/src/space/central.rs" {
        GroupIsInUseBeforeItIsUsed "group-is-in-use-before-it-is-used" on Both, "reuse":
            "The number of groups in use includes a group before anything in it is given out.",
            "it includes the group when the next one is taken";
    }
    Allocation in "eyrie-engine/src/volume/generation.rs" {
        GenerationsAreLeasedFirst "generations-are-leased-first" on Both, "one call":
            "The limit of generations is raised before one below it is given out.",
            "the old limit stays";
    }
    Allocation in "eyrie-engine/src/space/slab.rs" {
        SlabPageIsFreeWhenEmpty "slab-page-is-free-when-empty" on Both, "reuse":
            "A page of small extents is free when its last extent is.",
            "it is free while one is left";
    }
    Allocation in "eyrie-engine/src/object/mfile/copy.rs" {
        OnlyUnusedPagesAreRetired "only-unused-pages-are-retired" on Both, "reuse":
            "Of an extent that becomes a tree only the pages behind the last byte are given back.",
            "the page with the last byte is given back, too";
    }
    Allocation in "eyrie-engine/src/scm/opens.rs" {
        OpenFileOutlivesItsNames "open-file-outlives-its-names" on Both, "readers":
            "The storage of a file without a name is given back after its last close.",
            "it is given back with its last name";
    }
    Collections in "eyrie-engine/src/object/collection/update.rs" {
        FurtherPageBeforeItsLink "further-page-before-its-link" on Memory, "long names":
            "A further page of a bucket persists before the link to it.",
            "it is stored after it";
    }
    Collections in "eyrie-engine/src/object/collection/page.rs" {
        RecordBeforeItsSlot "record-before-its-slot" on Memory, "one call":
            "The record of an entry persists before its slot is live.",
            "it is stored after it";
        SpilledBitBeforeItsEntry "spilled-bit-before-its-entry" on Memory, "long names":
            "A line of slots says that an entry is in another line before that entry is live.",
            "it says so after it";
        InventoryBeforeItsEntry "inventory-before-its-entry" on Memory, "one call":
            "The gap and the kinds of a page include an entry before it is live.",
            "they include it after it";
        DeadStampIsWritten "dead-stamp-is-written" on Memory, "one call":
            "The time of a change is written to the stamp of the page that does not count.",
            "it is written to the stamp that counts";
    }
    Collections in "eyrie-engine/src/object/collection/grow.rs" {
        WiderTableHasEverySegment "wider-table-has-every-segment" on Both, "a wide directory":
            "A larger table of a collection has every segment of the one before.",
            "the last one is missing";
        NewBucketBeforeItsCount "new-bucket-before-its-count" on Memory, "growth":
            "The pages of a new bucket persist before the number of buckets includes it.",
            "the first of them is stored after it";
        SplitTakesEveryPage "split-takes-every-page" on Both, "long names":
            "A split moves the entries of every page of the old bucket.",
            "it moves those of the first page";
        SweepKeepsWhatCounts "sweep-keeps-what-counts" on Both, "growth":
            "Clearing a bucket after a split keeps every entry that counts there.",
            "it drops the last";
    }
    Files in "eyrie-engine/src/object/mfile/copy.rs" {
        VisiblePageIsCopied "visible-page-is-copied" on Memory, "one call":
            "A page with visible bytes is copied to be changed.",
            "it is changed in place";
    }
    Files in "eyrie-engine/src/object/mfile/append.rs" {
        GapBecomesZeros "gap-becomes-zeros" on Both, "reuse":
            "The bytes between the end of a file and a write behind it become zeros.",
            "they keep what their storage had";
    }
    Files in "eyrie-engine/src/object/mfile/write.rs" {
        SealedBytesStay "sealed-bytes-stay" on Both, "readers":
            "The bytes of a value are never changed in place.",
            "a word of them is changed";
    }
    Files in "eyrie-engine/src/scm/write.rs" {
        BytesBeforeTheirSize "bytes-before-their-size" on Memory, "one call":
            "The bytes of a write behind the end are durable before the size includes them.",
            "the size comes first";
    }
    Recovery in "eyrie-engine/src/recovery.rs" {
        RecoveryVisitsEveryBucket "recovery-visits-every-bucket" on Both, "growth":
            "A recovery visits the objects of every bucket.",
            "it leaves out the last bucket of each part of a directory";
    }
    Recovery in "eyrie-engine/src/object/visit.rs" {
        RecoveryVisitsAttributes "recovery-visits-attributes" on Both, "one call":
            "A recovery marks the storage of extended attributes as used.",
            "it counts as free";
        RecoveryVisitsEveryHeight "recovery-visits-every-height" on Both, "growth":
            "A recovery marks the storage of files of every height as used.",
            "that of trees of two levels and more counts as free";
    }
    Recovery in "eyrie-engine/src/object/collection/check.rs" {
        RecoveryVisitsFurtherPages "recovery-visits-further-pages" on Both, "long names":
            "A recovery marks every page of a bucket as used.",
            "those behind the first count as free";
    }
    Volumes in "eyrie-engine/src/volume/save.rs" {
        SavedAllocatorBeforeItsMark "saved-allocator-before-its-mark" on Memory, "closing":
            "The saved allocator persists before the mark that says that it counts.",
            "the mark comes first";
        CleanMarkIsClearedByOpening "clean-mark-is-cleared-by-opening" on Both, "one call":
            "Opening a volume clears the clean mark before the first change.",
            "the mark stays";
    }
    Volumes in "eyrie-engine/src/space/saved.rs" {
        SavedChecksumCoversAll "saved-checksum-covers-all" on Memory, "damage":
            "The checksum of the saved allocator covers all of its bytes.",
            "it covers the first 128";
    }
    Volumes in "eyrie-engine/src/volume/open.rs" {
        FoundStoresAreFlushed "found-stores-are-flushed" on Memory, "killed processes":
            "The stores that opening an unclosed volume finds are durable before anything is changed.",
            "nothing flushes them: a killed process may have left them in the processor's caches";
    }
    Volumes in "eyrie-engine/src/tables/superblock.rs" {
        SuperblockCopiesAreOrdered "superblock-copies-are-ordered" on Memory, "resizing":
            "One copy of the superblock is durable before the other is written.",
            "nothing is between them";
    }
    Volumes in "eyrie-engine/src/volume/resize.rs" {
        FileIsLongEnoughBeforeItsSize "file-is-long-enough-before-its-size" on Memory, "resizing":
            "The file of a volume is long enough before the superblock says the new size.",
            "the superblock says it first";
        GroupsLeaveUseBeforeTheEnd "groups-leave-use-before-the-end" on Memory, "resizing":
            "Groups beyond a smaller volume are out of use before the superblock says the new size.",
            "the superblock says it first";
    }
}
