"use strict";
// Times are in UTC; beside each stands the one of whoever looks, where that is another.
(function () {
  Array.prototype.forEach.call(document.querySelectorAll("time[datetime]"), function (time) {
    var moment = new Date(time.getAttribute("datetime"));
    if (isNaN(moment) || moment.getTimezoneOffset() === 0) { return; }
    var local = document.createElement("span");
    local.className = "local";
    local.textContent = " (" + moment.toLocaleString([], { day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit" }) + " here)";
    time.appendChild(local);
  });
})();
// Finds nodes by a part of their name. Without scripts the page is whole, only without this field.
(function () {
  var field = document.getElementById("find");
  if (!field) { return; }
  var nodes = Array.prototype.slice.call(document.querySelectorAll("[data-node]"));
  field.closest("[hidden]").hidden = false;
  field.addEventListener("input", function () {
    var wanted = field.value.trim().toLowerCase();
    nodes.forEach(function (node) {
      node.hidden = wanted !== "" && node.getAttribute("data-node").toLowerCase().indexOf(wanted) < 0;
    });
  });
})();
