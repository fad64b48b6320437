/** What several pages use comes with the first file: alone, each would be one more request. */

import "./acknowledgments/release";
import "./actions/PartitionActionButtons";
import "./actions/requests";
import "./actions/resetTarget";
import "./actions/useAction";
import "./chart/Legend";
import "./chart/PointerDetails";
import "./chart/ViewChoice";
import "./chart/fittingText";
import "./components/Chip";
import "./components/CompleteUntil";
import "./components/CopyButton";
import "./components/FactList";
import "./components/Instant";
import "./components/LiveContent";
import "./components/Owner";
import "./components/Section";
import "./components/Statistic";
import "./components/useTypedText";
import "./partitions/Progress";
import "./partitions/Time";
import "./supervisor/records";
import "./supervisor/specChanges";
import "./supervisor/verbs";
import "./table/SmallTable";
