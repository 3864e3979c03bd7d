//! The rules of threads and of processes, which end the catalogue.

/// Makes the enum of these rules, followed by the rules of threads and of processes.
macro_rules! with_parallel_rules { ($($explored:tt)*) => { rules! {
    $($explored)*
    Threads in "eyrie-engine/src/scm/create.rs" {
        SplitLocksItsShard "split-locks-its-shard" on Scheduler, "shards::ops_in_one":
            "A directory grows under the lock of the shard whose bucket is split.",
            "it grows under the lock of the new entry's shard";
    }
    Threads in "eyrie-engine/src/space/reclaim.rs" {
        CountsFallBeforeTheEpoch "counts-fall-before-the-epoch" on Scheduler, "clones":
            "The epoch of the retirement of a page is read after the counts of pointers to it have fallen.",
            "the epoch is read before the counts fall";
    }
    Threads in "eyrie-engine/src/scm/quotas.rs" {
        ChargeBeforeTheCommit "charge-before-the-commit" on Scheduler, "quotas::limit":
            "An Op is charged to its quotas, or refused, before its commit.",
            "it is charged after the commit";
        ChownMovesUsage "chown-moves-usage" on Scheduler, "quotas::owners":
            "A change of owner takes the usage of the object from the old owner and gives it to the new one.",
            "the old owner keeps the usage, too";
        FreedObjectGivesBack "freed-object-gives-back" on Scheduler, "quotas::freed":
            "The free of an object gives its storage back to its quotas.",
            "it gives nothing back";
    }
    Threads in "eyrie-engine/src/object/collection/grow.rs" {
        FewBucketsGrowUnderEveryShard "few-buckets-grow-under-every-shard" on Scheduler, "shards::overtaken":
            "Growth that gives entries another shard holds the locks of all shards.",
            "it holds the lock of the shard whose bucket is split";
    }
    Threads in "eyrie-engine/src/scm/locks.rs" {
        DirectoryOpLocksEveryShard "directory-op-locks-every-shard" on Scheduler, "shards::removed":
            "An Op on a directory itself holds the locks of all its shards.",
            "it holds the lock of the first shard";
        EntryIsInItsLockedShard "entry-is-in-its-locked-shard" on Scheduler, "shards::ops_in_one":
            "An Op that holds an entry's shard begins again if growth has moved the entry to another shard.",
            "the Op goes on";
    }
    Threads in "eyrie-engine/src/object/collection/read.rs" {
        NotedShardIsCurrent "noted-shard-is-current" on Scheduler, "shards::overtaken":
            "A look-up that notes its shard compares the number of buckets afterwards.",
            "growth before the note stays unnoticed";
    }
    Threads in "eyrie-engine/src/object/collection/buckets.rs" {
        BucketIsInOneShard "bucket-is-in-one-shard" on Scheduler, "shards::ops_in_one":
            "All hashes of a bucket are in one shard.",
            "a directory with few buckets uses all shards";
    }
    Threads in "eyrie-engine/src/scm/counts.rs" {
        SumIsPreparedBeforeTheCommit "sum-is-prepared-before-the-commit" on Scheduler, "directories::count":
            "An Op prepares the new sum of a shard, with its witness, before its commit.",
            "it prepares the sum after the commit";
        OneCommitChangesAllSums "one-commit-changes-all-sums" on Scheduler, "directories::count":
            "An Op on several shards prepares the sums of all of them before its commit.",
            "it prepares the first sum before the commit, and the others after it";
        SumIsOfOneMoment "sum-is-of-one-moment" on Scheduler, "directories::large":
            "A sum of pages that were read without a lock counts only if no page has changed meanwhile.",
            "every such sum counts";
    }
    Threads in "eyrie-engine/src/object/collection/walk.rs" {
        ListingLeavesOutWhatItShowed "listing-leaves-out-what-it-showed" on Scheduler, "shrinking":
            "After a merge, a listing leaves out the entries of the merged bucket that it has shown.",
            "it shows them again";
    }
    Threads in "eyrie-engine/src/scm/shrink.rs" {
        ShrinkLocksEveryShard "shrink-locks-every-shard" on Scheduler, "shrinking":
            "A directory shrinks under the locks of all its shards.",
            "it shrinks under the lock of the removed entry's shard";
        MergeDropsPartOfASummary "merge-drops-part-of-a-summary" on Scheduler, "shrinking":
            "A directory that shrinks drops a summary that its merges would make wrong.",
            "it keeps the summary";
    }
    Threads in "eyrie-engine/src/advisory/ranges.rs" {
        UnlockFreesEveryByte "unlock-frees-every-byte" on Scheduler, "advisory::unlocked":
            "An unlock frees every byte of its range.",
            "the last byte stays locked";
    }
    Threads in "eyrie-engine/src/advisory/table.rs" {
        DeadlockIsRefused "deadlock-is-refused" on Scheduler, "advisory::deadlock":
            "A process that would wait for itself gets an error.",
            "the process waits";
        EndedSessionHasNoLocks "ended-session-has-no-locks" on Scheduler, "advisory::ended":
            "The end of a session ends all of its locks.",
            "its locks stay";
    }
    Threads in "eyrie-engine/src/scm/summaries.rs" {
        SumsAreCollectedTwice "sums-are-collected-twice" on Scheduler, "directories::count":
            "A reader believes the sums of the shards only if their numbers are the same in a second pass.",
            "it believes those of the first pass";
    }
    Threads in "eyrie-medium/src/epoch.rs" {
        EpochBeginsBeforeItsCounts "epoch-begins-before-its-counts" on Scheduler, "epochs::clock_waits":
            "An epoch begins before the counts of its pins are noted.",
            "the counts are noted first";
    }
    Processes in "eyrie-medium/src/paged/remote.rs" {
        ClientWaitsForPages "client-waits-for-pages" on Services, "served_disk::pages_in_use":
            "A client reads a page of a disk only if the page is in memory and not about to leave it.",
            "it reads every page without this condition";
    }
    Processes in "eyrie-medium/src/epoch.rs" {
        EvictionWaitsForClients "eviction-waits-for-clients" on Services, "served_disk::pages_in_use":
            "An epoch ends only after all pins of other processes that began before it have ended.",
            "it waits only for the pins of this process";
    }
    Processes in "eyrie-medium/src/reader.rs" {
        DeadOwnerIsNoticed "dead-owner-is-noticed" on Services, "served_disk::changes_after":
            "A client of a disk asks if its service lives before it believes a read.",
            "it believes every read";
    }
    Processes in "eyrie-engine/src/volume/open.rs" {
        OwnerIsDurableFirst "owner-is-durable-first" on Services, "served_disk::sync_after":
            "A service of a disk makes its number durable before its first client comes.",
            "the number becomes durable with the first sync";
    }
    Processes in "eyrie-engine/src/volume/generation.rs" {
        GenerationsOutliveTheKill "generations-outlive-the-kill" on Services, "served_disk::generations":
            "A service of a disk leases generations for its clients before the first of them comes.",
            "after a kill, generations that clients know are assigned again";
    }
    Processes in "eyrie-engine/src/volume/owners.rs" {
        EachOwnerIsCounted "each-owner-is-counted" on Services, "served::changes_after":
            "Each process that opens a volume for changes first raises the number of owners.",
            "the number stays as it was";
    }
    Processes in "eyrie/src/kept.rs" {
        KeptIdIsCompared "kept-id-is-compared" on Services, "served::changes_after":
            "The id that a handle keeps is compared with its object in each new session.",
            "it is used as it is";
    }
    Processes in "eyrie-client/src/client.rs" {
        OwnerIsCompared "owner-is-compared" on Services, "served::changes_after":
            "After a read, a client compares the number of owners with the number in its key.",
            "it takes every owner for its service";
        LostChangesAreNoted "lost-changes-are-noted" on Services, "served_disk::sync_after":
            "A client of a disk notes that the kill of its service may have undone its changes.",
            "a later sync succeeds";
        ClientWaitsForOps "client-waits-for-ops" on Services, "served_pmem::fsync_waits":
            "On persistent memory, an `fsync` of a client waits for an Op in progress.",
            "it waits for no Op";
        WaitingReaderAsks "waiting-reader-asks" on Services, "served_pmem::reader_of":
            "A client that waits for a redo record asks from time to time if its service lives.",
            "it takes a dead service for a live one";
    }
    Processes in "eyrie-engine/src/scm/replay.rs" {
        ReplayTakesHeaders "replay-takes-headers" on Services, "deferred::names_outlive":
            "An owner that finds a log allocates the header of each object that the log has made.",
            "another object gets the header, too";
    }
    Processes in "eyrie-engine/src/scm/replay.rs" {
        ReplayComparesHeldParts "replay-compares-held-parts" on Services, "deferred::left_entries":
            "An owner that finds a log applies only entries whose objects the session of the log held.",
            "it applies every entry";
        ReplayKeepsItsLogs "replay-keeps-its-logs" on Services, "left_logs::full_host":
            "An owner that finds a log and a full host keeps the log and fails to open the volume.",
            "it drops the entries for which it finds no storage";
        ReplayKeepsToTheBudget "replay-keeps-to-the-budget" on Services, "deferred::left_entries":
            "An owner that finds a log applies no entry beyond the budget of the log.",
            "it applies every entry";
    }
    Processes in "eyrie-engine/src/scm/logged.rs" {
        ReplayKeepsGenerations "replay-keeps-generations" on Services, "deferred::names_outlive":
            "An object that a log has made gets the generation that its client knows.",
            "it gets another generation";
    }
    Processes in "eyrie-client/src/log.rs" {
        SealStopsAppends "seal-stops-appends" on ServiceScheduler, "deferred::":
            "A client moves the end of its log by a compare-and-exchange, which fails after a seal.",
            "it stores the end without a condition";
        ClosedLogIsInDoubt "closed-log-is-in-doubt" on Services, "deferred::entry_in_a_closed":
            "A client that finds its log closed after an append asks how far the next owner has applied it.",
            "it takes the change for made";
    }
    Processes in "eyrie-client/src/deferred.rs" {
        ReadsWaitForEntries "reads-wait-for-entries" on ServiceScheduler, "deferred::":
            "Before a client reads bytes, the service applies the logged changes of these bytes.",
            "it reads at once";
        OwnNamesAreSeen "own-names-are-seen" on ServiceScheduler, "deferred::readers_see_each_answered_name":
            "A client looks for a name among its logged changes before it looks in the volume.",
            "it looks only in the volume";
        HeldPartsAreCompared "held-parts-are-compared" on ServiceScheduler, "deferred::":
            "A client logs a change only if its session holds the grants of all objects of the change.",
            "it logs every change";
    }
    Processes in "eyrie-service/src/logs/grants.rs" {
        NamedObjectsAreTaken "named-objects-are-taken" on ServiceScheduler, "deferred::":
            "Before a request, a service takes back the grants of the objects whose names the request has.",
            "it takes back only the grants of the objects whose ids the request has";
        GrantsComeUnderASeal "grants-come-under-a-seal" on Sessions, "deferred::further_grants":
            "A service gives further grants to a session only while the log of the session is sealed.",
            "the log is open";
        GrantEndsAfterItsEntries "grant-ends-after-its-entries" on ServiceScheduler, "deferred::":
            "A service clears the grant only after it has applied the log.",
            "it clears the grant first";
        GrantIsNoted "grant-is-noted" on Services, "deferred::logged_changes_outlive":
            "A service notes the holder of the grant in the table of logs before the first entry.",
            "it notes no holder, and the next owner applies no log";
    }
    Processes in "eyrie-service/src/logs.rs" {
        EntriesKeepToTheirBudget "entries-keep-to-their-budget" on Sessions, "deferred::entries_beyond":
            "A service applies no entry beyond the budget of its log.",
            "it applies every entry for which it finds storage";
        FoundEntriesAreNoted "found-entries-are-noted" on Sessions, "deferred::service_notes":
            "A service notes the position after the entries that it finds before it applies one of them.",
            "it notes no such position, and a change that it applies right before its end may be made twice";
        RequestsStopAppends "requests-stop-appends" on ServiceScheduler, "deferred::":
            "A log is sealed while the service handles a request of its session.",
            "the log is open";
        EntryIsAppliedBeforeItCounts "entry-is-applied-before-it-counts" on ServiceScheduler, "deferred::":
            "A service notes an entry as applied only after it has applied it.",
            "it notes the entry first";
    }
    Processes in "eyrie-client/src/channel.rs" {
        AnswerOfADeadServiceCounts "answer-of-a-dead-service-counts" on Services, "served::answer_of":
            "A client whose service has ended looks for an answer before it asks the next service.",
            "it asks the next service at once, and makes an answered change again";
        BellRingsBeforeTheLook "bell-rings-before-the-look" on ServiceScheduler, "lanes::each_request":
            "A client rings its bell before it looks if the service sleeps.",
            "it looks first";
    }
    Processes in "eyrie-client/src/engine.rs" {
        ClaimBeforeTheLook "claim-before-the-look" on ServiceScheduler, "order::open_beside":
            "A client claims an object before it looks if the object is unlinked.",
            "it looks first";
    }
    Processes in "eyrie-service/src/requests.rs" {
        RequestIsRecordedFirst "request-is-recorded-first" on Services, "served_pmem::reader_of":
            "A service records a request before it applies the request.",
            "it records nothing, so the next service takes each interrupted change for one that was not made";
    }
    Processes in "eyrie-service/src/server.rs" {
        ServiceLooksAgain "service-looks-again" on ServiceScheduler, "lanes::each_request":
            "A service looks at the bells again after it has announced that it sleeps.",
            "it does not look again";
    }
    Processes in "eyrie-service/src/session.rs" {
        SessionEndsBeforeItsPins "session-ends-before-its-pins" on ServiceScheduler, "order::session_ends":
            "A session ends on the board before its pins are dropped.",
            "the pins are dropped first";
    }
} } }

pub(super) use with_parallel_rules;
